"""The learning rate of every batch: a function of the schedule and the batch's place alone.

With r the rate asked for, t the batch counted from 0 over the whole training, T how many there are
and W how many belong to the warm-up:

    constant   r
    step       r * factor ^ floor(epoch / step_epochs)
    cosine     r * (1 + cos(pi * (t - W) / (T - W))) / 2

and in the warm-up, t < W, that of batch W times (t + 1) / W (Goyal et al. 2017).
"""

from __future__ import annotations

import math

from golow.record import GolowError
from golow.training.record import Schedule


def rates(
    schedule: Schedule, rate: float, *, epoch: int, epochs: int, batches: int
) -> tuple[float, ...]:
    """Of each of the batches of an epoch; epoch counts from 1, batches are those of one epoch."""
    first = (epoch - 1) * batches
    return tuple(_rate(schedule, rate, t, epochs, batches) for t in range(first, first + batches))


def require_sense(schedule: Schedule, epochs: int) -> None:
    """Raise `GolowError` for a schedule that says nothing in so many epochs."""
    if not 0 <= schedule.warm_up_epochs < epochs:
        raise GolowError(
            f"a warm-up of {schedule.warm_up_epochs:g} epochs does not fit into {epochs}",
            "use a --warm-up below --epochs.",
        )
    if schedule.kind == "step" and schedule.step_epochs < 1:
        raise GolowError("--step-epochs is at least 1")
    if schedule.kind == "step" and not 0 < schedule.factor < math.inf:
        raise GolowError(f"--factor {schedule.factor:g} is not above 0")


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
