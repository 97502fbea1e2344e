"""The one clock: these loops time every Python worker; C++ has equal ones."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NamedTuple

from golow.worker.served_program import Stopwatch


class DeviceTimes(NamedTuple):
    """Nanoseconds of each iteration: for the host to enqueue it, for the device to run it."""

    host_ns: tuple[int, ...]
    device_ns: tuple[int, ...]


class Around(NamedTuple):
    """Callbacks around every iteration, outside its clock; each gets the iteration's number,
    counted from the first untimed one."""

    before: Callable[[int], None]
    after: Callable[[int], None]


def nothing(iteration: int) -> None:
    """Do nothing around an iteration."""


NOTHING_AROUND = Around(nothing, nothing)


def time_iterations(
    iterate: Callable[[], None], iterations: int, warmup: int, around: Around = NOTHING_AROUND
) -> tuple[int, ...]:
    """Nanoseconds of each of ``iterations`` calls by the monotonic clock, after untimed calls."""
    samples = []
    with collector_as_timed():
        for index in range(warmup + iterations):
            around.before(index)
            start = time.perf_counter_ns()
            iterate()
            samples.append(time.perf_counter_ns() - start)
            around.after(index)
    return tuple(samples[warmup:])


def time_on_device(
    iterate: Callable[[], None],
    iterations: int,
    warmup: int,
    stopwatch: Stopwatch,
    cold: bool,
    around: Around = NOTHING_AROUND,
) -> DeviceTimes:
    """Time iterations that a device runs, each between two of its events.

    All are enqueued back to back, as in a user's loop, with one synchronisation at the end. cold:
    the L2 is emptied before each, outside the events.
    """
    with collector_as_timed():
        for index in range(warmup):
            around.before(index)
            iterate()
            around.after(index)
        samples = []
        for index in range(iterations):
            around.before(warmup + index)
            if cold:
                stopwatch.flush()
            stopwatch.start(index)
            start = time.perf_counter_ns()
            iterate()
            samples.append(time.perf_counter_ns() - start)
            stopwatch.stop(index)
            around.after(warmup + index)
        return DeviceTimes(tuple(samples), stopwatch.nanoseconds())


class Collector:
    """Mode of Python's garbage collector while iterations are timed.

    stays_on: it runs then, too, which a user may choose; otherwise it is disabled, as in timeit:
    which iteration it hits is random. freezes: it leaves out what lives before a block.
    """

    stays_on = False
    freezes = True


def leave_collector_on(freezes: bool) -> None:
    """Let the garbage collector run during timed iterations of this process."""
    Collector.stays_on, Collector.freezes = True, freezes


@contextmanager
def collector_as_timed() -> Iterator[None]:
    """The garbage collector as it is while iterations are timed. It runs once before the untimed
    iterations, because it leaves the caches cold: after them it would slow down the first timed
    one, and only in Python."""
    gc.collect()
    if Collector.freezes:
        gc.freeze()  # living objects need no further collection before the next block
    if not Collector.stays_on:
        gc.disable()
    try:
        yield
    finally:
        gc.enable()
