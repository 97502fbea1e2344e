"""The order of the lives, and how long the rest of them will take."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from statistics import mean
from typing import Literal, NamedTuple

Kind = Literal["cold", "warm", "tried", "change"]


class Measurement(NamedTuple):
    """One measurement: a life of a level with a cold or warm cache or with a setting, or the change
    of its batch size."""

    round: int
    kind: Kind
    level: str
    setting: str = ""


def schedule(
    levels: Sequence[str], rounds: int, seed: int, *, cold: bool, settings: Sequence[str]
) -> list[Measurement]:
    """All measurements. In each round every level comes once with each kind, in random order, so
    that a drift of the machine does not favour a level. Kinds follow one another: a warm life needs
    what the cold one left. Without cold lives nothing may be built, so no batch size is changed.
    """
    random_order = random.Random(seed)  # noqa: S311 - an order of measurements, not a secret
    planned = []
    for number in range(rounds):
        for kind, setting in _kinds(cold, settings):
            order = random_order.sample(levels, len(levels))
            planned += [Measurement(number, kind, level, setting) for level in order]
    return planned


def _kinds(cold: bool, settings: Sequence[str]) -> Iterator[tuple[Kind, str]]:
    if cold:
        yield "cold", ""
    yield "warm", ""
    for setting in settings:
        yield "tried", setting
    if cold:
        yield "change", ""


class Forecast:
    """How long the rest will take, from what was measured so far."""

    def __init__(self) -> None:
        self._taken: dict[tuple[Kind, str], list[float]] = {}

    def add(self, measurement: Measurement, seconds: float) -> None:
        """A measurement is done."""
        self._taken.setdefault((measurement.kind, measurement.level), []).append(seconds)

    def left(self, planned: Sequence[Measurement]) -> float | None:
        """Seconds of these measurements: those of the same kind and level, or the mean of all; None
        before the first."""
        everything = [second for found in self._taken.values() for second in found]
        if not everything:
            return None
        same = (self._taken.get((one.kind, one.level), everything) for one in planned)
        return sum(mean(found) for found in same)
