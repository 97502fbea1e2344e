"""Turns on a GPU that several comparisons share: real processes, real locks."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import pytest

import golow
from golow.observer import Silent
from golow.records.errors import GolowError, WorkerFailure
from golow.worker.client import Worker
from golow.worker.protocol import LoadReport
from golow.worker.time_limits import Limits
from golow.worker.turn import Turn
from support.places import WORKERS
from support.processes import all_gone

TICKING = WORKERS / "ticking.py"
PROGRAM = WORKERS / "turns.py"


class Had(NamedTuple):
    """A turn that a process had, in nanoseconds of the machine's clock."""

    begun: int
    ended: int
    kind: str
    process: int


def started(folder: Path, number: int, times: int) -> subprocess.Popen[bytes]:
    arguments = [str(folder / "turns"), str(folder / "log"), str(times), str(number)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    return subprocess.Popen([sys.executable, "-S", str(PROGRAM), *arguments], env=environment)


def turns(folder: Path) -> Iterator[Had]:
    for row in (folder / "log").read_text().splitlines():
        kind, begun, ended, process = row.split()
        yield Had(int(begun), int(ended), kind, int(process))


@pytest.mark.slow
def test_who_is_alone_is_alone(tmp_path: Path) -> None:
    processes = [started(tmp_path, number, 40) for number in range(4)]
    assert [process.wait(60) for process in processes] == [0] * 4
    had = sorted(turns(tmp_path))
    assert len(had) == 160
    together = 0
    for first, second in pairwise(had):
        overlap = second.begun < first.ended
        together += overlap
        assert not overlap or first.kind == second.kind == "beside"
    latest = 0
    for one in had:  # neighbours alone do not show an early turn that lasts long
        assert one.kind == "beside" or one.begun >= latest
        latest = max(latest, one.ended)
    assert together, "nobody was ever beside another"


@pytest.mark.slow
def test_a_process_that_is_killed_gives_its_turn_back(tmp_path: Path) -> None:
    killed = [started(tmp_path, number, 10_000) for number in range(3)]
    while not (tmp_path / "log").is_file() or len(list(turns(tmp_path))) < 20:
        time.sleep(0.01)
    for process in killed:
        process.kill()
        process.wait()
    assert started(tmp_path, 9, 20).wait(60) == 0


def test_turns_within_the_own_turn_do_not_wait(tmp_path: Path) -> None:
    turn = Turn(tmp_path)
    with turn.alone(), turn.beside():
        pass
    with turn.beside():
        pass


def test_who_wants_to_be_alone_keeps_others_from_coming(tmp_path: Path) -> None:
    """Else one could wait forever while others come and go."""
    first, second, third = (Turn(tmp_path) for _ in range(3))
    order: list[str] = []

    def take(turn: Turn, kind: str) -> None:
        with getattr(turn, kind)():
            order.append(kind)

    with first.beside():
        alone = threading.Thread(target=take, args=(second, "alone"))
        alone.start()
        time.sleep(0.1)
        beside = threading.Thread(target=take, args=(third, "beside"))
        beside.start()
        time.sleep(0.1)
        assert order == []
    alone.join(10)
    beside.join(10)
    assert order == ["alone", "beside"]


def test_a_folder_that_cannot_be_is_explained(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(GolowError, match="cannot be used"):
        Turn(tmp_path / "file" / "turns")


class Building:
    """A worker of its own turn that loads for a second, in a thread."""

    def __init__(self, folder: Path, how: str, limit: float = 60.0) -> None:
        self.ticks = folder / "ticks"
        self.answers: list[LoadReport | WorkerFailure] = []
        command = (sys.executable, "-S", str(TICKING), str(self.ticks), "100")
        environment = {"PYTHONPATH": os.pathsep.join(sys.path)}
        limits, turn = Limits(load=limit), Turn(folder / "turns")
        self.worker = Worker(
            "ticking", command, threads=1, environment=environment, limits=limits, turn=turn
        )
        self.thread = threading.Thread(target=self._ask, args=(how, folder))
        self.thread.start()

    def _ask(self, how: str, bundle: Path) -> None:
        with self.worker:
            try:
                self.answers.append(getattr(self.worker, how)(bundle))
            except WorkerFailure as failure:
                self.answers.append(failure)

    def begun(self) -> None:
        """Wait for its first ticks."""
        while not (self.ticks.is_file() and len(self.ticks.read_text().splitlines()) > 10):
            assert self.thread.is_alive()
            time.sleep(0.01)

    def ended(self) -> tuple[list[int], LoadReport | WorkerFailure]:
        """Its ticks, and its answer."""
        self.thread.join(60)
        [answer] = self.answers
        return [int(row) for row in self.ticks.read_text().splitlines()], answer


def alone(turn: Turn, seconds: float) -> tuple[int, int]:
    with turn.alone():
        begun = time.monotonic_ns()
        time.sleep(seconds)
        return begun, time.monotonic_ns()


@pytest.mark.slow
def test_who_builds_gives_way_to_who_is_timed(tmp_path: Path) -> None:
    """For longer than it may take itself, which does not count."""
    building = Building(tmp_path, "build", limit=8.0)
    building.begun()
    begun, ended = alone(Turn(tmp_path / "turns"), 9.0)
    ticks, report = building.ended()
    assert len(ticks) == 100
    assert [tick for tick in ticks if begun < tick < ended] == []
    assert ticks[0] < begun < ended < ticks[-1]
    assert isinstance(report, LoadReport)
    assert report.phases["build"] < 8.0, "the time in which it stood still is in its own"


@pytest.mark.slow
def test_who_loads_does_not_give_way(tmp_path: Path) -> None:
    loading = Building(tmp_path, "load")
    loading.begun()
    begun, _ = alone(Turn(tmp_path / "turns"), 0.0)
    ticks, _ = loading.ended()
    assert len(ticks) == 100
    assert ticks[-1] < begun


@pytest.mark.slow
def test_who_is_ended_while_it_gives_way_is_gone(tmp_path: Path) -> None:
    building = Building(tmp_path, "build")
    building.begun()
    with Turn(tmp_path / "turns").alone():
        os.kill(building.worker.pid, signal.SIGKILL)
    _, failure = building.ended()
    assert isinstance(failure, WorkerFailure) and failure.kind == "died"
    assert all_gone(building.worker.pid)


class Stages(Silent):
    """Keeps the stages."""

    def __init__(self) -> None:
        self.texts: list[str] = []

    def stage(self, text: str) -> None:
        self.texts.append(text)


@pytest.mark.slow
@pytest.mark.usefixtures("forked")
def test_a_comparison_is_timed_once_nobody_else_is_on_the_card(tmp_path: Path) -> None:
    other, heard = Turn(tmp_path), Stages()

    def compare() -> None:
        mine = Turn(tmp_path)
        golow.compare(
            "mlp", batch=1, levels=["eager"], threads=1, turn=mine, time_limit=0.5, observer=heard
        )

    comparison = threading.Thread(target=compare)
    with other.beside():
        comparison.start()
        while not any("checking" in text for text in heard.texts):
            time.sleep(0.05)
        time.sleep(1)
        assert "calibrating the race" not in heard.texts
    comparison.join(60)
    assert "calibrating the race" in heard.texts
