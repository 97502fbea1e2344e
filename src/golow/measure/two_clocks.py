"""The parent's clock against the worker's: whether the times that a worker reports fill its blocks.

A worker times itself. Whoever reports less time than passed can be found out by the parent, which
knows how long the whole request took. What the worker does outside its iterations' clock, and what
the request itself costs, is allowed for.
"""

from __future__ import annotations

from collections.abc import Sequence

from golow.measure.block import warmup_iterations
from golow.record import Block

REQUEST_SECONDS = 0.03
"""Allowed for a request without its iterations: two messages, Python's garbage collection, a reset,
and saving the inputs that are marked. Four times as much in a contended block."""

AROUND_SECONDS = 20e-6
"""Allowed for what is done around an iteration: a mark, and its result kept."""

LEAST_SHARE = 0.75
"""Of the time that passed and is not allowed for, the times of a level must be at least this."""

SHORT_SECONDS, LEAST_SHORT_SHARE = 1e-3, 0.25
"""The same for iterations shorter than this, if no block is clean: what is done around them takes a
share of the time, and the worker waits for a core there, too."""

LEAST_SECONDS = 0.2
"""Seconds of blocks beyond what is allowed for, from which on a level is judged."""


def filled_share(blocks: Sequence[Block]) -> float | None:
    """The share of the blocks' time that the reported times fill; may exceed 1, since more may be
    allowed for than was used. None if there is too little to tell."""
    passed = sum(map(_seconds_not_allowed_for, blocks))
    return sum(map(_reported_seconds, blocks)) / passed if passed >= LEAST_SECONDS else None


def refute(blocks: Sequence[Block]) -> str:
    """Why the reported times cannot be true; empty if they can."""
    known = [block for block in blocks if block.wall_ns]
    share, least = filled_share([block for block in known if not block.contended]), LEAST_SHARE
    if share is None and known:
        share = filled_share(known)
        iterations = sum(len(block.host_ns) for block in known)
        passed = sum(block.wall_ns for block in known) / 1e9
        least = LEAST_SHORT_SHARE if passed / iterations < SHORT_SECONDS else LEAST_SHARE
    if share is None or share >= least:
        return ""
    return (
        f"by golow's own clock its blocks took longer: the times it reports fill {share:.1%} of "
        f"them, at least {least:.0%} is expected"
    )


def _reported_seconds(block: Block) -> float:
    """Of all iterations; the untimed ones take as long as the timed ones."""
    count = len(block.host_ns)
    times = block.device_ns or block.host_ns
    return sum(times) / 1e9 * (count + warmup_iterations(count)) / count


def _seconds_not_allowed_for(block: Block) -> float:
    count = len(block.host_ns)
    request = REQUEST_SECONDS * (4 if block.contended else 1)
    allowed = request + AROUND_SECONDS * (count + warmup_iterations(count))
    return max(0.0, block.wall_ns / 1e9 - allowed)
