"""The clock's loop: what is timed, what is not, and that the collector stays out of it."""

from __future__ import annotations

import gc
import time
import weakref

import pytest

from golow.worker.clock import time_iterations


def test_the_untimed_come_first_and_are_not_kept() -> None:
    calls: list[int] = []

    def iterate() -> None:
        calls.append(len(calls))
        if len(calls) <= 2:
            time.sleep(0.05)

    samples = time_iterations(iterate, iterations=5, warmup=2)
    assert len(calls) == 7
    assert len(samples) == 5
    assert all(0 < sample < 50_000_000 for sample in samples)


def test_one_sample_is_one_iteration() -> None:
    samples = time_iterations(lambda: time.sleep(0.01), iterations=3, warmup=0)
    assert all(sample >= 10_000_000 for sample in samples)


def test_the_collector_stays_out() -> None:
    """Of the untimed iterations too: it leaves the caches cold."""
    collections: list[str] = []
    seen: list[tuple[bool, int]] = []

    def note(phase: str, info: dict[str, int]) -> None:
        if seen:
            collections.append(phase)

    def iterate() -> None:
        seen.append((gc.isenabled(), len(collections)))
        for _ in range(2000):  # garbage enough for the collector to run, were it allowed to
            ring: list[object] = []
            ring.append(ring)
        seen.append((gc.isenabled(), len(collections)))

    gc.callbacks.append(note)
    try:
        time_iterations(iterate, iterations=3, warmup=2)
    finally:
        gc.callbacks.remove(note)
    assert seen == [(False, 0)] * 10
    assert gc.isenabled()


def test_garbage_of_one_block_is_gone_before_the_next() -> None:
    """Also what was made after the first collection, whose survivors are not looked at again."""

    class Ring:
        def __init__(self) -> None:
            self.ring = self

    made: list[weakref.ref[Ring]] = []
    time_iterations(lambda: made.append(weakref.ref(Ring())), iterations=1, warmup=0)
    assert made[0]() is not None
    alive: list[bool] = []
    time_iterations(lambda: alive.append(made[0]() is not None), iterations=1, warmup=0)
    assert alive == [False]


def test_the_collector_is_back_after_a_failure() -> None:
    def iterate() -> None:
        raise RuntimeError("the kernel refuses")

    with pytest.raises(RuntimeError):
        time_iterations(iterate, iterations=1, warmup=0)
    assert gc.isenabled()
