"""Answers that are late, of real workers on cores that are busy or idle."""

from __future__ import annotations

import os
import sys
import time
from contextlib import ExitStack
from pathlib import Path

import pytest

from golow.records.errors import OutOfTime
from golow.worker import awaited_answer
from golow.worker.client import Worker
from golow.worker.scheduling import ProcessorShare, run_queue_wait_ns
from support.places import WORKERS
from support.processes import all_gone, spinning_on
from support.workers.bundles import product_bundle

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        run_queue_wait_ns(os.getpid()) is None, reason="this system keeps no schedstat"
    ),
]
FAULTY = WORKERS / "faulty.py"


def test_a_worker_that_is_not_waited_for_is_closed_and_leaves_nothing(tmp_path: Path) -> None:
    command = [sys.executable, str(FAULTY), "hung", "3"]
    with Worker("late", command, threads=1) as worker:
        worker.load(product_bundle(tmp_path / "bundle").folder)
        worker.time(2, 1)
        with pytest.raises(OutOfTime, match=r"late: no answer within .* s"):
            worker.time(2, 1, within=0.3)
        pid = worker.pid
    assert all_gone(pid)


def test_one_line_says_that_a_late_worker_is_slow_by_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(awaited_answer, "NOTICE_SECONDS", 0.1)
    monkeypatch.setattr(awaited_answer, "LOOK_SECONDS", 0.2)
    monkeypatch.setattr(awaited_answer, "BUSY_SECONDS", 0.5)
    told: list[str] = []
    command = [sys.executable, str(FAULTY), "hung", "3"]
    with Worker("late", command, threads=1) as worker:
        worker.on_busy = told.append
        worker.load(product_bundle(tmp_path / "bundle").folder)
        worker.time(2, 1)
        with pytest.raises(OutOfTime):
            worker.time(2, 1, within=2.0)
    [line] = told
    assert line.startswith("late has not answered for")
    assert "load average" in line
    assert "the cores are busy" not in line
    assert "\n" not in line


def test_one_line_says_that_the_cores_are_busy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Four programs share the worker's core."""
    core = max(os.sched_getaffinity(0))
    with ExitStack() as stack:
        pids = [stack.enter_context(spinning_on(core)) for _ in range(4)]
        share = ProcessorShare(pids[0])
        time.sleep(1.0)
        assert share.lost is not None
        assert share.lost > 0.4
        assert share.words.startswith("the cores are busy (load average ")
        assert share.words.endswith("end other programs, or measure when they have ended")
