"""Workers that are started before they are needed."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import psutil
import pytest

from golow.levels import ladder
from golow.levels.early_workers import MOST, EarlyWorkers
from golow.levels.ladder import ChosenLevel, Launch
from golow.levels.starter import Starter
from golow.records.errors import WorkerFailure
from golow.worker.client import Worker
from golow.worker.turn import Turn
from support.processes import all_gone, soon
from support.workers.bundles import network_bundle


@pytest.mark.slow
def test_workers_are_ahead_of_their_need_and_end_with_the_starter(tmp_path: Path) -> None:
    bundle = network_bundle(tmp_path / "bundle", "train", threads=1)
    before = {child.pid for child in psutil.Process().children()}
    with Starter(turn=Turn(tmp_path / "turns")) as starter:
        built = ladder.choose("libtorch", "train")
        eager = ladder.choose("eager", "train")
        starter.ahead([ladder.choose(ladder.REFERENCE, "train"), eager, built], "train", 1)
        ahead = {child.pid for child in psutil.Process().children()} - before
        assert len(ahead) == 2, "of the three the built one waits for its program"
        launch = Launch(("cat",))  # would end with the pipe, and answers nothing
        worker = starter.worker("eager", launch, bundle)
        assert worker.pid in ahead
        with worker:
            worker.load(bundle.folder)
            assert worker.time(1, 0).host_ns
        with starter.worker("eager", launch, bundle) as second:
            assert second.pid not in ahead, "the one that was ahead is taken"
            second.wake("train")
    assert all_gone(*ahead)


def children() -> set[int]:
    return {child.pid for child in psutil.Process().children()}


def test_nothing_is_ahead_on_a_gpu_that_is_not_shared() -> None:
    """It would disturb what a start costs, and what memory is taken there."""
    before = children()
    with Starter() as starter:
        starter.ahead([ladder.choose("eager", "train")], "train", 1, "cuda")
        assert children() == before


@pytest.mark.slow
def test_workers_of_a_cpu_start_one_after_another(tmp_path: Path) -> None:
    bundle = network_bundle(tmp_path / "bundle", "infer", threads=1)
    names = ["eager", "eager:channels_last", "torchscript", "eager:float64"]
    before, launch = children(), Launch(("cat",))  # would answer nothing
    with Starter() as starter:
        starter.ahead([ladder.choose(name, "infer") for name in names], "infer", 1)
        assert len(children() - before) <= 1, "one imports at a time"
        assert soon(lambda: len(children() - before) == MOST)
        with starter.paused():
            ahead = children() - before
        assert len(ahead) == MOST, "the others wait until one of these is taken"
        with starter.worker("eager", launch, bundle) as worker:
            assert worker.pid in ahead
            time.sleep(0.1)
            worker.load(bundle.folder)
            assert worker.idle >= 0.1, "waiting is no part of its start"
            assert worker.time(1, 0).host_ns
        assert soon(lambda: len(children() - before) == MOST), "the next takes its place"
        with starter.paused():
            ahead |= children() - before
        assert soon(lambda: len(children() - before) == MOST)
    assert all_gone(*ahead)


@pytest.mark.slow
def test_a_worker_that_dies_before_it_is_needed_fails_its_level(tmp_path: Path) -> None:
    bundle, before = network_bundle(tmp_path / "bundle", "infer", threads=1), children()
    with Starter() as starter:
        starter.ahead([ladder.choose("eager", "infer")], "infer", 1)
        assert soon(lambda: len(children() - before) == 1)
        (process,) = children() - before
        os.kill(process, signal.SIGKILL)
        worker = starter.worker("eager", Launch(("cat",)), bundle)
        with pytest.raises(WorkerFailure, match="SIGKILL"):
            worker.load(bundle.folder)


def test_a_worker_that_cannot_start_leaves_the_next_to_start(tmp_path: Path) -> None:
    def refuse(choice: ChosenLevel) -> Worker:
        asked.append(choice.name)
        raise WorkerFailure("not started", "planted")

    asked: list[str] = []
    early = EarlyWorkers(refuse, [ladder.choose(n, "infer") for n in ("eager", "torchscript")])
    assert soon(lambda: len(asked) == 2)
    assert early.take("eager") is None
    early.close()
