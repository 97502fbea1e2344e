"""The search for the highest rate that meets a latency limit.

Each level's rate is first found roughly, by bisection over runs of LoadGen. Then all levels take
turns: in each round every level searches again, from a place near its own rate. So a machine that
slows down for a while slows all levels, and the spread of the rounds is the interval.

LoadGen's own search (FindPeakPerformance) runs one system from beginning to end, with nothing in
between; its runs are used here, not its order.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable

Holds = Callable[[float], bool]
"""True if the limit is met at a rate."""

ROUGH_STEP, ROUGH_PRECISION = 2.0, 1.15
STEP, PRECISION = 1.12, 1.04
"""Factors between rates: of the steps that enclose the highest rate, and within which a search
ends."""
FAR = 64.0  # times its start, or a 64th of it, beyond which a search gives up


def roughly(holds: Holds, start: float) -> float | None:
    """About the highest rate; None if no rate down to a 64th of the start holds."""
    return _highest(holds, start, ROUGH_STEP, ROUGH_PRECISION)


def again(holds: Holds, near: float, draw: random.Random) -> float | None:
    """The highest rate of a round. It begins at a random place near the rough one: with the same
    rates in each round, all rounds would end at the same rate."""
    return _highest(holds, near * STEP ** draw.uniform(-0.5, 0.5), STEP, PRECISION)


def _highest(holds: Holds, start: float, step: float, precision: float) -> float | None:
    """The middle of two rates within the precision, of which the lower one holds and the higher one
    does not; None if there is no such pair near the start. The last rate tried if even 64 times the
    start holds."""
    low = high = start
    if holds(start):
        while holds(high := low * step):
            low = high
            if low > FAR * start:
                return low
    else:
        while not holds(low := high / step):
            high = low
            if high < start / FAR:
                return None
    while high / low > precision:
        middle = math.sqrt(low * high)
        low, high = (middle, high) if holds(middle) else (low, middle)
    return math.sqrt(low * high)
