"""Autocast's cache: whether cast weights are kept until the forward pass is over."""

from __future__ import annotations

from typing import Any

from golow.levels.choices.choice import IN_PYTORCH, Alternative, Choice

KEPT, AGAIN, NONE = "casts are kept", "casts are repeated", "there is no autocast"


def read(program: Any) -> str:
    """Report the setting inside the context that surrounds the forward pass."""
    import torch

    if program.arithmetic.autocast is None:
        return NONE
    with program.arithmetic.casting(program.device.type):
        return KEPT if torch.is_autocast_cache_enabled() else AGAIN


def _repeat(program: Any) -> None:
    program.habits.casts_kept = False


CHOICES = (
    Choice(
        name="autocast_cache",
        summary="whether a weight that is used twice in a forward pass is cast once",
        made_by="PyTorch",
        where="torch.autocast, cache_enabled=True",
        levels=IN_PYTORCH,
        modes=("train",),
        read=read,
        alternatives=(
            Alternative(
                name="no_autocast_cache",
                summary="every use of a weight casts it again, and then frees the copy",
                value=AGAIN,
                call=_repeat,
                rebuilds=True,
                python="torch.autocast(..., cache_enabled=False)",
            ),
        ),
    ),
)
