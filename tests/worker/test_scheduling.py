"""Contention is seen in a real process that must share its core."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time

import pytest

from golow.worker.scheduling import ContentionMeter, run_queue_wait_ns
from support.processes import spinning_on

needs_schedstat = pytest.mark.skipif(
    run_queue_wait_ns(os.getpid()) is None, reason="this system keeps no schedstat"
)


@pytest.mark.slow
@needs_schedstat
def test_two_processes_on_one_core_are_contended() -> None:
    core = max(os.sched_getaffinity(0))
    with spinning_on(core) as pid, spinning_on(core):
        meter = ContentionMeter(pid)
        before, began = meter.read(), time.monotonic_ns()
        time.sleep(0.6)
        share = meter.wait_share(before, meter.read(), time.monotonic_ns() - began)
    print(f"wait share of one of two processes on a core: {share}")
    assert share is not None
    assert 0.2 < share < 1.05


@needs_schedstat
def test_waits_of_all_threads_are_summed() -> None:
    before = run_queue_wait_ns(os.getpid())
    done = threading.Event()
    threads = [threading.Thread(target=done.wait) for _ in range(4)]
    for thread in threads:
        thread.start()
    during = run_queue_wait_ns(os.getpid())
    done.set()
    for thread in threads:
        thread.join()
    assert before is not None
    assert during is not None
    assert during >= before


def test_no_such_process_is_unknown() -> None:
    with subprocess.Popen([sys.executable, "-c", ""]) as process:
        process.wait()
    assert run_queue_wait_ns(process.pid) is None
    assert ContentionMeter(process.pid).read() is None


@pytest.mark.parametrize(
    ("before", "after", "wall_ns", "share"),
    [
        (100, 150, 1000, 0.05),
        (0, 4000, 1000, 4.0),  # several threads
        (500, 100, 1000, 0.0),  # a thread ended and took its figure with it
        (None, 100, 1000, None),
        (100, None, 1000, None),
        (100, 200, 0, None),
    ],
)
def test_wait_share(
    before: int | None, after: int | None, wall_ns: int, share: float | None
) -> None:
    assert ContentionMeter.wait_share(before, after, wall_ns) == share
