"""Races of workers that answer by a script, and what a race says of ``level``."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from golow.measure.rounds import Race
from golow.records.comparison import Sample
from golow.worker.protocol import Challenge


class Clock:
    seconds = 0.0

    def __call__(self) -> float:
        return self.seconds


class Scripted:
    """A worker whose every answer is given by a function of (its call's number, iterations).

    It notes what it was asked; its clock is shared by all workers of the script.
    """

    calls: list[tuple[str, int, int]]

    def __init__(
        self,
        name: str,
        clock: Clock,
        nanoseconds: int = 10_000_000,
        answer: Callable[[int, int], Sample] | None = None,
    ) -> None:
        self.name, self.clock, self.nanoseconds = name, clock, nanoseconds
        self.answer = answer or self.plain
        self.calls = []
        self.draw = np.random.default_rng([*name.encode()])

    def plain(self, call: int, iterations: int, wait_share: float | None = 0.0) -> Sample:
        # A spread of its own, so that the rounds and their ratios are not all alike.
        spread = self.draw.lognormal(0, 0.001)
        return Sample(host_ns=(int(self.nanoseconds * spread),) * iterations, wait_share=wait_share)

    def time(
        self,
        iterations: int,
        warmup: int,
        cold: bool = False,
        challenge: Challenge | None = None,
        within: float | None = None,
    ) -> Sample:
        self.calls.append((self.name, iterations, warmup))
        sample = self.answer(len(self.calls), iterations)
        self.clock.seconds += (iterations + warmup) * self.nanoseconds * 1e-9
        return sample


def word_of(race: Race) -> str:
    ratio = race.ratio("level")
    assert ratio is not None
    return ratio.word


def value_of(race: Race) -> float:
    ratio = race.ratio("level")
    assert ratio is not None
    return ratio.value
