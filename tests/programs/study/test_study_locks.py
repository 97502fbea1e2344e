"""Two studies on one device wait for each other; whoever waits is told for whom."""

from __future__ import annotations

import multiprocessing
import os
import re
import subprocess
import sys
import threading
from pathlib import Path

import psutil
import pytest

from golow.programs.study.local import LocalExecutor
from golow.programs.study.lock import DeviceLock
from golow.programs.study.places import places
from golow.records.errors import GolowError
from support.processes import soon
from support.records import studies
from support.records.studies import Heard, run

FORK = multiprocessing.get_context("fork")
ONE = studies.study(batch=(1,), resolution=(8,))


@pytest.fixture(autouse=True)
def comparison(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CELL_COMPARISON", str(studies.made_comparison(tmp_path)))


def test_a_lock_has_one_holder_and_his_name(tmp_path: Path) -> None:
    first, second = DeviceLock("GPU-1", tmp_path), DeviceLock("GPU-1", tmp_path)
    other = DeviceLock("GPU-2", tmp_path)
    assert first.acquire("mine") and first.acquire("mine") and first.held
    assert not second.acquire("yours") and not second.held
    assert re.fullmatch(rf"mine \(process {os.getpid()}, since [\d: -]+ UTC\)", second.holder())
    assert other.acquire("yours")
    first.release()
    with second:
        assert second.acquire("yours")
    assert not second.held
    assert first.acquire("mine")


def test_the_lock_of_a_dead_holder_is_free(tmp_path: Path) -> None:
    def hold() -> None:
        lock = DeviceLock("GPU-1", tmp_path)
        lock.acquire("dead")
        threading.Event().wait()

    holder = FORK.Process(target=hold)
    holder.start()
    mine = DeviceLock("GPU-1", tmp_path)
    assert soon(lambda: "dead" in mine.holder())
    assert not mine.acquire("mine")
    holder.kill()
    holder.join()
    assert mine.acquire("mine")


def test_a_child_of_the_holder_does_not_keep_it(tmp_path: Path) -> None:
    mine = DeviceLock("GPU-1", tmp_path)
    assert mine.acquire("mine")
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as child:
        mine.release()
        assert DeviceLock("GPU-1", tmp_path).acquire("yours")
        child.communicate(b"\n")


def test_a_folder_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    (tmp_path / "locks").write_text("a file where a folder should be")
    with pytest.raises(GolowError, match="cannot be opened") as raised:
        DeviceLock("GPU-1", tmp_path).acquire("mine")
    assert "GOLOW_CACHE" in raised.value.hint


def test_a_cell_of_several_gpus_takes_all_of_them_or_none(tmp_path: Path) -> None:
    """Otherwise two studies could each hold what the other one waits for."""
    [here], heard = places("cpu"), Heard()
    pair = here._replace(locks=("GPU-1", "GPU-2"))
    other = DeviceLock("GPU-2", tmp_path)
    assert other.acquire("other")
    with LocalExecutor([pair], "mine", tmp_path, Path, 1.0, heard) as executor:
        assert not executor.has_room(None)
        assert "other" in heard.waits[0][1]
        first = DeviceLock("GPU-1", tmp_path)
        assert first.acquire("third")
        first.release()
        other.release()
        assert executor.has_room(None)
        assert not first.acquire("third")
        assert not other.acquire("other")


@pytest.mark.slow
def test_the_second_study_waits_for_the_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first is killed while it measures: its lock is gone with it."""
    monkeypatch.setenv("CELL_SECONDS", "1000")
    first = FORK.Process(target=run, args=(studies.study(name="first"), tmp_path))
    first.start()
    assert first.pid is not None
    assert soon(lambda: len(psutil.Process(first.pid).children()) == 1)

    class Ending(Heard):
        def waiting(self, device: str, holder: str) -> None:
            super().waiting(device, holder)
            first.kill()
            first.join()

    monkeypatch.setenv("CELL_SECONDS", "0")
    heard = Ending()
    run(ONE, tmp_path, heard)
    [(device, holder)] = heard.waits
    assert device == places("cpu")[0].machine.device
    assert holder.startswith(f"first (process {first.pid}, since ")
    assert len(studies.records(tmp_path)) == 1
