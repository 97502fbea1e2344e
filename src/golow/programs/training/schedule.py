"""The learning rate of every batch: a function of the schedule and the batch's position alone.

r is the requested rate, t the batch counted from 0 over the whole training run, T the number of
batches and W how many of them are in the warm-up:

    constant   r
    step       r * factor ^ floor(epoch / step_epochs)
    cosine     r * (1 + cos(pi * (t - W) / (T - W))) / 2

During the warm-up (t < W) the cosine is 1, and each rate is multiplied by (t + 1) / W (Goyal et al.
2017).
"""

from __future__ import annotations

import math

from golow.programs.training.training_record import Schedule
from golow.records.errors import GolowError


def rates(
    schedule: Schedule, rate: float, *, epoch: int, epochs: int, batches: int
) -> tuple[float, ...]:
    """The rate of each batch of an epoch. epoch: counts from 1. batches: per epoch."""
    first = (epoch - 1) * batches
    return tuple(_rate(schedule, rate, t, epochs, batches) for t in range(first, first + batches))


def require_sense(schedule: Schedule, epochs: int) -> None:
    """Raise `GolowError` for a schedule that makes no sense over this many epochs."""
    if not 0 <= schedule.warm_up_epochs < epochs:
        raise GolowError(
            f"a warm-up of {schedule.warm_up_epochs:g} epochs does not fit into {epochs}",
            "use a --warm-up below --epochs.",
        )
    if schedule.kind == "step" and schedule.step_epochs < 1:
        raise GolowError("--step-epochs must be at least 1")
    if schedule.kind == "step" and not 0 < schedule.factor < math.inf:
        raise GolowError(f"--factor must be above 0 and finite, not {schedule.factor:g}")


def _rate(schedule: Schedule, rate: float, t: int, epochs: int, batches: int) -> float:
    warm_up = schedule.warm_up_epochs * batches
    if t < warm_up:
        rate *= min(1.0, (t + 1) / warm_up)
    if schedule.kind == "step":
        return rate * schedule.factor ** (t // batches // schedule.step_epochs)
    if schedule.kind == "cosine" and t > warm_up:
        done = (t - warm_up) / (epochs * batches - warm_up)
        return rate * (1 + math.cos(math.pi * done)) / 2
    return rate
