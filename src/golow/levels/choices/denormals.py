"""Numbers smaller than 1.2e-38 in float32, on which a CPU may be many times slower."""

from __future__ import annotations

from typing import Any

from golow.levels.choices.choice import WITH_TORCH, Alternative, Choice

DENORMAL, COUNT = 1e-40, 1 << 20  # enough numbers for every thread
KEPT, FLUSHED, MIXED = "kept", "flushed to zero", "flushed to zero in some threads"


def read(program: Any) -> str:
    """Report the result of multiplying such numbers by one, in all threads."""
    import torch

    product = torch.full((COUNT,), DENORMAL) * torch.ones(COUNT)
    zeros = COUNT - int(torch.count_nonzero(product.view(torch.int32)))
    return {0: KEPT, COUNT: FLUSHED}.get(zeros, MIXED)


def _flush(program: Any) -> None:
    import torch

    torch.set_flush_denormal(True)  # type: ignore[no-untyped-call, unused-ignore]


CHOICES = (
    Choice(
        name="denormals",
        summary="whether numbers too small for full precision are kept or become zero",
        made_by="the CPU",
        where="torch.set_flush_denormal; set per thread (MXCSR), inherited from its creator",
        levels=WITH_TORCH,
        devices=("cpu",),
        read=read,
        changes_results=True,
        alternatives=(
            Alternative(
                name="flush_denormals",
                summary="they become zero",
                value=FLUSHED,
                call=_flush,
                python="torch.set_flush_denormal(True)  # before the first operation",
                cpp="at::globalContext().setFlushDenormal(true);",
            ),
        ),
    ),
)
