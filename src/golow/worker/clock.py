"""The one clock of the CPU: every Python worker is timed by this loop, and C++ by its twin."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable


def time_iterations(iterate: Callable[[], None], iterations: int, warmup: int) -> tuple[int, ...]:
    """Nanoseconds of each of ``iterations`` calls by the monotonic clock, after untimed ones.

    The collector is kept out, as it is in timeit: which iteration it hits is an accident. It runs
    before the untimed iterations, because it leaves the caches cold: after them it would slow down
    the first timed one, and only in Python.
    """
    gc.collect()
    gc.freeze()  # what lives now need not be looked at again before the next block
    gc.disable()
    try:
        for _ in range(warmup):
            iterate()
        samples = []
        for _ in range(iterations):
            start = time.perf_counter_ns()
            iterate()
            samples.append(time.perf_counter_ns() - start)
    finally:
        gc.enable()
    return tuple(samples)
