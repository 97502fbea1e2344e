"""The loss scale with which a training run in fp16 begins; ``sources/session.h`` of the level
libtorch has the same in C++."""

from __future__ import annotations

from collections.abc import Callable

from golow.records.errors import GolowError

FIRST_SCALE = 65536.0  # torch.amp.GradScaler's
LEAST_SCALE = 1.0


def settle_loss_scale(
    step: Callable[[], object], current: Callable[[], float], batches: int
) -> float:
    """The loss scale at which no step is skipped on any batch: neither the check's steps nor the
    timed ones may be.

    step: a training step on the next batch at a learning rate of 0, which halves the scale where it
    finds a gradient that is not finite. The weights must not move: the gradients of the first steps
    are the largest, and smaller ones would settle on a scale too large for those. current: the
    scale now. batches: how many there are. Raises `GolowError` where no scale is small enough.
    """
    kept, scale = 0, current()
    while kept < batches:
        step()
        before, scale = scale, current()
        if scale < LEAST_SCALE:
            raise GolowError(
                "gradients in fp16 are not finite, whatever the scale of the loss",
                "use --precision bf16.",
            )
        kept = kept + 1 if scale >= before else 0
    return scale / 2  # another batch's gradients may be a little larger
