"""When the iterations of a process became steady."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

WINDOW = 5
"""Iterations whose median is looked at: a single slow one must not count as unsettled."""

BAND = (2.5, 97.5)
"""Percentiles of the steady iterations between which a settled window falls."""

LEAST = 2 * WINDOW
"""Fewer iterations have no half that could be steady."""


class Settled(NamedTuple):
    """steady: seconds of a steady iteration. after: the iterations before the settled ones; None if
    they did not settle. extra: seconds that those before took beyond steady ones, the first
    iteration not counted."""

    steady: float
    after: int | None
    extra: float


def settle(nanoseconds: Sequence[int]) -> Settled:
    """Look for the first window of iterations that is as long as steady ones are.

    The second half of the iterations counts as steady: its median is the time of a steady
    iteration, and the middle 95% of it is the band that a settled window's median is in. If no
    window of the first half does, the process was still changing. Raises ValueError for fewer than
    `LEAST` iterations.
    """
    if len(nanoseconds) < LEAST:
        raise ValueError(f"{len(nanoseconds)} iterations are too few to show when they settle")
    times = np.asarray(nanoseconds, dtype=float) / 1e9
    half = len(times) // 2
    low, high = np.percentile(times[half:], BAND)
    steady = float(np.median(times[half:]))
    medians = np.median(np.lib.stride_tricks.sliding_window_view(times, WINDOW), axis=1)[:half]
    inside = np.flatnonzero((low <= medians) & (medians <= high))
    # The first iteration is a separate stage, so at least that one comes before.
    after = max(1, int(inside[0])) if inside.size else None
    extra = float(np.sum(times[1 : after or half] - steady))
    return Settled(steady, after, max(0.0, extra))
