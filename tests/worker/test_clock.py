"""The clock's loop: what is timed, what is not, and that the collector stays out of it."""

from __future__ import annotations

import gc
import time
import weakref

import pytest

from golow.worker.clock import time_iterations, time_on_device


@pytest.mark.slow
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


# ---------------------------------------------------------------- on a device


class Notes:
    """A stopwatch that notes what it is asked for; its device needs 7 ns an iteration."""

    def __init__(self) -> None:
        self.heard: list[str] = []
        self.iterations = 0

    def flush(self) -> None:
        self.heard.append("flush")

    def start(self, iteration: int) -> None:
        self.heard.append(f"start {iteration}")

    def stop(self, iteration: int) -> None:
        self.heard.append(f"stop {iteration}")
        self.iterations += 1

    def nanoseconds(self) -> tuple[int, ...]:
        self.heard.append("read")
        return (7,) * self.iterations


@pytest.mark.parametrize("cold", [False, True])
def test_iterations_are_enqueued_between_events_and_read_once(cold: bool) -> None:
    watch = Notes()
    found = time_on_device(lambda: watch.heard.append("run"), 2, 1, watch, cold)
    assert found.device_ns == (7, 7)
    assert len(found.host_ns) == 2
    flush = ["flush"] if cold else []
    timed = [step for i in (0, 1) for step in (*flush, f"start {i}", "run", f"stop {i}")]
    assert watch.heard == ["run", *timed, "read"]


def test_the_collector_stays_out_on_a_device_too() -> None:
    watch, seen = Notes(), []
    time_on_device(lambda: seen.append(gc.isenabled()), 2, 2, watch, cold=False)
    assert seen == [False] * 4
    assert gc.isenabled()
