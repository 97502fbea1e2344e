"""The clock's loop: what is timed, what is not, and that the collector stays out of it."""

from __future__ import annotations

import gc
import time
import weakref

import pytest

from golow.worker.clock import time_iterations


def test_the_untimed_come_first_and_are_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a clock that only the iterations move: the first two take 50 ns, the others 1 ns each."""
    now, calls = 0, 0

    def iterate() -> None:
        nonlocal now, calls
        calls += 1
        now += 50 if calls <= 2 else 1

    monkeypatch.setattr(time, "perf_counter_ns", lambda: now)
    assert time_iterations(iterate, iterations=5, warmup=2) == (1, 1, 1, 1, 1)
    assert calls == 7


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
