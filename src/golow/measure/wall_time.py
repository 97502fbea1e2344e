"""How long a race may take by the clock on the wall, whatever its workers do.

A worker states how long an iteration took; a machine whose cores are busy, or a worker that stalls,
takes longer than any plan made from that. A race ends all the same: no block begins that should end
after it, and no answer is waited for much beyond it. Blocks never get shorter: they would show too
little of a worker that cheats, and its own times would make them so.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from golow.measure.block import warmup_iterations

OVERTIME = 2
"""How many times its limit a race may take: for the rounds that any conclusion needs, and for
blocks that take longer than planned."""

LEAST_SECONDS = 15.0
"""Seconds that a race may take whatever its limit, so that a short one is not ended by a pause of
the machine."""

OVERTIME_OF_SHORT_RACES = 5
"""How many times its limit a race may take for the rounds that any conclusion needs, as long as
that is no more than `LEAST_SECONDS`."""

PATIENCE = 4
"""A block of a round that must be run may take this many times its plan, even beyond the end of
the race: each level of a slow model is timed once."""

UNEVEN = 2
"""A block that has begun may take this many times the longest one of its level so far, or what its
calibration predicts, even beyond the end of the race: it began because that would have ended in
time, and a training level whose block is cut has no time."""


class Plan(NamedTuple):
    """The plan for a worker's blocks. iterations: of each. seconds: of the fastest iteration in the
    calibration, by the worker's clock, above 0. passed: of its last ones, by golow's clock; 0 if
    that is not known."""

    iterations: int
    seconds: float
    passed: float = 0.0

    @property
    def block_seconds(self) -> float:
        """Seconds of a block, with the iterations that are not timed."""
        return self._all_iterations * self.seconds

    @property
    def longest(self) -> float:
        """Seconds of a block whose iterations take as long as the last ones of the calibration."""
        return self._all_iterations * self.passed

    @property
    def _all_iterations(self) -> int:
        return self.iterations + warmup_iterations(self.iterations)


class WallTime:
    """Ends a race by the clock. Make it when the calibration is over: the rounds have at least the
    time limit, however long that took.

    clock: seconds. started: its time when the race began. limit: the race's time limit.
    for_conclusion: seconds in which the rounds that any conclusion needs must fit.
    """

    def __init__(self, clock: Callable[[], float], started: float, limit: float) -> None:
        self._clock = clock
        self._ends = max(started + max(OVERTIME * limit, LEAST_SECONDS), clock() + limit)
        short = min(OVERTIME_OF_SHORT_RACES * limit, LEAST_SECONDS)
        self.for_conclusion = max(OVERTIME * limit, short)

    @property
    def is_over(self) -> bool:
        """True if the race must end now."""
        return self._clock() >= self._ends

    def left(self, plan: Plan, longest: float, must: bool) -> float:
        """Seconds that a block may take. longest: seconds of the longest block of its level so far.
        must: its round must be run."""
        left = max(self._ends - self._clock(), UNEVEN * longest)
        return max(left, PATIENCE * plan.block_seconds if must else 0.0)

    def has_room(self, plan: Plan, longest: float) -> bool:
        """True if a block should end before the race must."""
        return self._clock() + max(plan.block_seconds, longest) < self._ends
