"""Rule of LoadGen's early stopping, generalised to any percentile: it decides when a percentile may
be quoted.

With n requests, k of which are over a latency, the percentile p is within that latency with 99%
confidence if k or fewer would be over by chance in at most 1% of runs in which more than 1 - p of
all requests are: P(X <= k) <= 0.01 for X binomial(n, 1 - p)
(https://github.com/mlcommons/inference/blob/master/loadgen/early_stopping.cc). The largest such k
gives the upper end of the percentile: the latency of the request after the k slowest. The lower end
is its mirror image. Both assume independent requests, as LoadGen does; requests that queue are not
independent, which is why runs are repeated.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Sequence
from functools import cache
from typing import NamedTuple

import numpy as np
from scipy.stats import binom

DOUBT = 0.01  # LoadGen's: 1 less its confidence of 99%
PERCENTILES = (0.5, 0.9, 0.99, 0.999)


class Quoted(NamedTuple):
    """A percentile of latencies, in seconds. low, high: its 99% ends; high is None if there are too
    few requests to quote it."""

    share: float
    value: float
    low: float | None
    high: float | None

    @property
    def is_sure(self) -> bool:
        """True if it may be quoted."""
        return self.high is not None


def allowed_over(count: int, share: float) -> int:
    """The number of requests, of this total, that may exceed the latency; -1 if none may, because
    too few ran."""
    found = int(binom.ppf(DOUBT, count, 1 - share))
    while found >= 0 and binom.cdf(found, count, 1 - share) > DOUBT:
        found -= 1
    return found


def allowing_none(share: float) -> int:
    """The fewest requests with which the percentile may be proved if none of them is over."""
    return math.ceil(math.log(DOUBT) / math.log(share))


@cache
def needed(share: float) -> int:
    """The fewest requests with which the percentile may be quoted: of which one may be over."""
    low = allowing_none(share)
    return bisect_left(range(4 * low), 1, low, key=lambda count: allowed_over(count, share))


def surely_over(over: int, count: int, share: float) -> bool:
    """True if this many requests over the latency show that the percentile is not within it."""
    return bool(over) and float(binom.sf(over - 1, count, 1 - share)) <= DOUBT


def quoted(latencies: Sequence[int], share: float) -> Quoted | None:
    """The percentile of latencies in nanoseconds, as far as early stopping allows; None if there
    are no latencies."""
    ordered = np.sort(np.asarray(latencies, dtype=float)) / 1e9
    count = ordered.size
    if not count:
        return None
    over = allowed_over(count, share)
    high = float(ordered[count - over]) if over >= 1 else None
    under = allowed_over(count, 1 - share)
    low = float(ordered[under - 1]) if under >= 1 else None
    return Quoted(share, float(ordered[min(count - 1, int(count * share))]), low, high)
