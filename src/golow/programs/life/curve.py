"""Total time over the number of iterations: which level is the fastest for how many, and from where
on one overtakes another.

Everything here is a pure function. A curve consists of straight pieces with corners at 1, at the
end of settling, and at the horizon. The difference of two curves is then straight between their
corners, so it changes its sign at most once there, and a bisection finds where.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

HORIZON = 10**7
"""Iterations up to which curves are compared."""


class Curve(NamedTuple):
    """The total seconds of a level as a function of its iterations.

    fixed: start and end of the process. first: seconds of the first iteration. settling: seconds
    that the iterations 2 to settled_after take beyond steady ones. steady: seconds of each further
    iteration.
    """

    fixed: float
    first: float
    settling: float
    settled_after: int
    steady: float

    def total(self, iterations: int) -> float:
        """Seconds from the start of a process to its end after this many iterations, from 1 on."""
        share = min(1.0, (iterations - 1) / (self.bend - 1))
        return self.fixed + self.first + self.steady * (iterations - 1) + self.settling * share

    @property
    def bend(self) -> int:
        """The iteration at which the curve becomes straight."""
        return max(2, self.settled_after)


class Segment(NamedTuple):
    """The fastest level from one number of iterations to another, both included."""

    level: str
    begin: int
    end: int


class BreakEven(NamedTuple):
    """From that number of iterations on, up to the horizon, the level takes at most as long as the
    other one; iterations is None if it does so nowhere near the horizon."""

    level: str
    other: str
    iterations: int | None


def fastest(curves: Mapping[str, Curve], iterations: int) -> str:
    """The level with the shortest total; of equal ones the first."""
    return min(curves, key=lambda name: curves[name].total(iterations))


def envelope(curves: Mapping[str, Curve], horizon: int = HORIZON) -> tuple[Segment, ...]:
    """The fastest level for every number of iterations from 1 to the horizon, in order; empty
    without curves."""
    segments: list[Segment] = []
    begin = 1
    while curves and begin <= horizon:
        level = fastest(curves, begin)
        turns = (
            _first_below(curves[other], curves[level], begin, horizon)
            for other in curves
            if other != level
        )
        # No other is shorter at `begin` itself, so every turn is later.
        end = min((turn - 1 for turn in turns if turn is not None), default=horizon)
        segments.append(Segment(level, begin, end))
        begin = end + 1
    return tuple(segments)


def break_even(
    level: str, other: str, curves: Mapping[str, Curve], horizon: int = HORIZON
) -> BreakEven:
    """The number of iterations from which on the level never takes longer than the other one."""
    mine, theirs = curves[level], curves[other]

    def behind(iterations: int) -> bool:
        return mine.total(iterations) > theirs.total(iterations)

    corners = _corners((mine, theirs), 1, horizon)
    if behind(horizon):
        return BreakEven(level, other, None)
    for low, high in reversed(list(pairwise(corners))):
        if behind(low):
            return BreakEven(level, other, _turn(lambda n: not behind(n), low, high))
    return BreakEven(level, other, 1)


def _first_below(curve: Curve, other: Curve, begin: int, horizon: int) -> int | None:
    """The first number of iterations after ``begin`` at which the curve is below the other."""

    def below(iterations: int) -> bool:
        return curve.total(iterations) < other.total(iterations)

    corners = _corners((curve, other), begin, horizon)
    for low, high in pairwise(corners):
        if below(high):
            return _turn(below, low, high)
    return None


def _turn(holds: Callable[[int], bool], low: int, high: int) -> int:
    """The first number at which it holds, if it holds at ``high`` and not at ``low``, and changes
    once between them."""
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if holds(middle) else (middle, high)
    return high


def _corners(curves: Sequence[Curve], begin: int, horizon: int) -> list[int]:
    """Where the difference of the curves may bend, between both ends, in order."""
    bends = {curve.bend for curve in curves}
    return sorted({begin, horizon, *(bend for bend in bends if begin < bend < horizon)})
