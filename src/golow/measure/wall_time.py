"""How long a race may take by the clock on the wall, whatever its workers do.

A worker states how long an iteration took; a machine whose cores are busy, or a worker that stalls,
takes longer than any plan made from that. Two things bound a race all the same: a worker whose last
block was slow is asked for shorter ones, and no answer is waited for beyond the end of the race.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from golow.measure.block import warmup_iterations
from golow.records.comparison import Block

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

SLOWED = 4
"""A block that took this many times its plan makes the next ones shorter. Noise rarely doubles
one."""


class Plan(NamedTuple):
    """The plan for a worker's blocks. iterations: of each. seconds: of an iteration, above 0."""

    iterations: int
    seconds: float

    def block(self, iterations: int) -> float:
        """Seconds of a block of so many iterations, with those that are not timed."""
        return (iterations + warmup_iterations(iterations)) * self.seconds


class WallTime:
    """Ends a race by the clock, and shortens blocks while they take much longer than planned.

    clock: seconds. started: its time when the race began. limit: the race's time limit.
    for_conclusion: seconds in which the rounds that any conclusion needs must fit.
    """

    def __init__(self, clock: Callable[[], float], started: float, limit: float) -> None:
        self._clock = clock
        self._ends = started + max(OVERTIME * limit, LEAST_SECONDS)
        short = min(OVERTIME_OF_SHORT_RACES * limit, LEAST_SECONDS)
        self.for_conclusion = max(OVERTIME * limit, short)
        self._paces: dict[str, float] = {}  # by worker: time of its last block over the plan
        self._last = 1.0  # the pace of the last block, whose worker does not matter

    @property
    def is_over(self) -> bool:
        """True if the race must end now."""
        return self._clock() >= self._ends

    def iterations(self, name: str, plan: Plan) -> int:
        """Iterations of the worker's next block: fewer than planned if its last block, or that of
        the worker before it, took far longer than planned."""
        pace = self._pace(name)
        return plan.iterations if pace < SLOWED else max(1, round(plan.iterations / pace))

    def left(self, name: str, plan: Plan, must: bool) -> float:
        """Seconds that the worker's next block may take. must: its round must be run."""
        left = self._ends - self._clock()
        return max(left, PATIENCE * self._expected(name, plan)) if must else max(left, 0.0)

    def has_room(self, name: str, plan: Plan) -> bool:
        """True if the worker's next block should end before the race must."""
        return self._clock() + self._expected(name, plan) < self._ends

    def took(self, name: str, block: Block, plan: Plan) -> None:
        """Compare a block of that worker with its plan."""
        seconds = sum(block.quoted_ns) / len(block.quoted_ns) / 1e9
        self._paces[name] = self._last = seconds / plan.seconds

    def _expected(self, name: str, plan: Plan) -> float:
        """Seconds of the worker's next block at the latest pace."""
        return plan.block(self.iterations(name, plan)) * max(self._pace(name), 1.0)

    def _pace(self, name: str) -> float:
        return max(self._paces.get(name, 1.0), self._last)
