"""The search for the highest rate that holds a latency.

Each level's rate is first found roughly, by bisection over runs of LoadGen. Then all levels take
turns: in each round every level bisects again, near its own rate. So a machine that slows down for
a while slows all levels, and the spread of the rounds is the interval.

LoadGen's own search (FindPeakPerformance) runs one system from beginning to end, with nothing in
between; its runs are used here, not its order.
"""

from __future__ import annotations

import math
from collections.abc import Callable

Holds = Callable[[float], bool]
"""Whether the latency is held at a rate."""

WIDE, WIDE_STEPS = 64.0, 6  # the rough search spans a factor of 64, and ends within 7%
NEAR, NEAR_STEPS = 1.35, 4  # a round spans 1.35 both ways, and ends within 4%


def roughly(holds: Holds, most: float) -> float | None:
    """The highest rate below ``most`` that holds; None if none down to a 64th of it does."""
    found = _bisected(holds, most / WIDE, most, WIDE_STEPS)
    if found is not None:
        return found
    lowest = most / WIDE
    return lowest if holds(lowest) else None


def again(holds: Holds, near: float) -> float:
    """The highest rate of a round. Where even the lowest of its rates does not hold, that one."""
    found = _bisected(holds, near / NEAR, near * NEAR, NEAR_STEPS)
    return found if found is not None else near / NEAR


def _bisected(holds: Holds, low: float, high: float, steps: int) -> float | None:
    best = None
    for _ in range(steps):
        rate = math.sqrt(low * high)
        if holds(rate):
            best = low = rate
        else:
            high = rate
    return best
