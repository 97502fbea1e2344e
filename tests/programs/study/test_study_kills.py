"""A study that is killed a hundred times ends with exactly the records of one that was not."""

from __future__ import annotations

import multiprocessing
import os
import random
import signal
import time
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from golow.programs.study.loop import MOST_ATTEMPTS
from golow.programs.study.places import Place, places
from golow.programs.study.store import StudyFolder
from golow.programs.study.study_record import CellRecord
from support.processes import mentioning, soon
from support.records import studies

KILLS = 100
STUDY = studies.study(batch=(1, 2, 3, 4, 5), resolution=(8, 9, 10, 11))


@pytest.fixture(autouse=True)
def cells_of_a_moment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CELL_COMPARISON", str(studies.made_comparison(tmp_path)))
    monkeypatch.setenv("CELL_SECONDS", "0.005")


@pytest.mark.slow
def test_a_hundred_kills_leave_the_records_of_an_undisturbed_study(tmp_path: Path) -> None:
    """kill -9 of the study or of a cell's process, at random moments; after a kill of the study it
    is run again. At no time is a cell there in half."""
    at = places("cpu")
    studies.run(STUDY, tmp_path / "undisturbed", at=at)
    undisturbed = studies.timeless(studies.records(tmp_path / "undisturbed"))
    assert len(undisturbed) == 20
    moments, kills, number = random.Random(6), {"study": 0, "cell": 0}, 0  # noqa: S311
    kept: set[int] = set()
    while sum(kills.values()) < KILLS:
        folder = tmp_path / str(number)
        if not killed(folder, at, moments, kills):
            assert whole(folder) == undisturbed
            number += 1
        else:
            kept.add(len(whole(folder)))
    studies.run(STUDY, folder, at=at)
    assert whole(folder) == undisturbed
    assert min(kills.values()) > 10
    assert len(kept) > 10  # they came early and late
    assert leftovers(folder) == {".lock", "cells", "study.toml"}
    assert soon(lambda: mentioning(str(tmp_path)) == [])


def killed(folder: Path, at: list[Place], moments: random.Random, kills: dict[str, int]) -> bool:
    """Run the study in a process of its own and kill that, after some of its cells; false where it
    came to its end."""
    study = multiprocessing.get_context("fork").Process(
        target=studies.run, args=(STUDY, folder), kwargs={"at": at}
    )
    study.start()
    assert study.pid is not None
    for _ in range(moments.randrange(MOST_ATTEMPTS)):  # one more, and the cell would be at fault
        study.join(moments.uniform(0, 0.1))
        if study.is_alive() and kill_a_cell(study.pid):
            kills["cell"] += 1
    study.join(moments.uniform(0, 0.2))
    if study.exitcode is not None:
        assert study.exitcode == 0
        return False
    study.kill()
    study.join()
    kills["study"] += 1
    return True


def kill_a_cell(study: int) -> bool:
    """True if a cell was being measured, which then is no more."""
    with suppress(psutil.Error, ProcessLookupError):
        for process in psutil.Process(study).children():
            os.kill(process.pid, signal.SIGKILL)
            return True
    return False


def whole(folder: Path) -> dict[str, CellRecord]:
    """Every cell that is there, each of which can be read to the end."""
    place = StudyFolder(folder / "tiny")
    found: dict[str, CellRecord] = {}
    for environment in place.environments():
        records = place.records(environment)
        there = {path.name for path in (place.cells / environment).iterdir() if path.is_dir()}
        assert there == set(records)
        for record in records.values():
            assert len(place.comparison(record).runs) == 2
        found |= records
    return studies.timeless(found)


def leftovers(folder: Path) -> set[str]:
    return {path.name for path in (folder / "tiny").iterdir()}


def test_a_cell_ends_when_its_study_is_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CELL_SECONDS", "1000")
    study = multiprocessing.get_context("fork").Process(target=studies.run, args=(STUDY, tmp_path))
    study.start()
    assert study.pid is not None
    assert soon(lambda: bool(psutil.Process(study.pid).children()))
    time.sleep(0.05)
    study.kill()
    study.join()
    assert soon(lambda: mentioning(str(tmp_path / "tiny")) == [])
