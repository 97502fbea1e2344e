"""Whatever happens to a cell is its record, and the study goes on."""

from __future__ import annotations

import json
import os
import resource
import signal
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from golow.programs.study import attempt
from golow.programs.study.loop import MOST_ATTEMPTS
from golow.programs.study.places import places
from golow.programs.study.store import StudyFolder
from golow.programs.study.study_record import CellRecord, Study, StudyLimits
from golow.records.errors import GolowError
from support.places import TESTS
from support.processes import mentioning, soon
from support.records import studies
from support.records.studies import Heard, run

ONE = studies.study(batch=(1,), resolution=(8,))
QUICK = StudyLimits(cell_seconds=0.3)


@pytest.fixture(autouse=True)
def comparison(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CELL_COMPARISON", str(studies.made_comparison(tmp_path)))


def with_fault(monkeypatch: pytest.MonkeyPatch, **faults: str) -> None:
    """By batch size: b4="crash"."""
    named = {name.removeprefix("b"): fault for name, fault in faults.items()}
    monkeypatch.setenv("CELL_FAULTS", json.dumps(named))


def by_batch(folder: Path) -> dict[int, CellRecord]:
    return {record.cell.batch: record for record in studies.records(folder).values()}


@pytest.mark.slow
def test_every_cell_gets_its_record(tmp_path: Path) -> None:
    heard = Heard()
    run(studies.study(), tmp_path, heard)
    found = studies.records(tmp_path)
    assert len(found) == 6
    assert {record.state for record in found.values()} == {"done"}
    assert [record.key for record in heard.records] == list(
        {record.key: 0 for record in heard.records}
    )
    assert heard.stages == ["measuring"] * 6
    assert [outlook.left for outlook in heard.outlooks] == [6, 5, 4, 3, 2, 1, 0]
    place = StudyFolder(tmp_path / "tiny")
    for record in found.values():
        assert place.comparison(record) == studies.comparison()
        folder = place.cells / record.environment / record.key
        assert {path.name for path in folder.iterdir()} == {"cell.json", record.comparison}
        assert record.needed_bytes == 1000 * record.cell.batch * (record.cell.resolution or 0) ** 2
    again = Heard()
    run(studies.study(), tmp_path, again)
    assert again.began_with == []
    assert again.outlooks[0].left == 0


@pytest.mark.slow
@pytest.mark.parametrize(
    ("fault", "reason", "log"),
    [
        ("crash", "its process was ended by SIGABRT", "a last word"),
        ("ended", "its process ended with status 3", ""),
        ("refused", "the model does not take that", ""),
        ("out of memory", "out of memory: there was none", ""),
        ("hang with a worker", "it did not finish within 0.3 s", ""),
        ("silent hang", "it did not finish within 0.3 s", ""),
        ("deaf", "it did not finish within 0.3 s", ""),
        ("killed with a worker", f"its process was ended by SIGKILL, {MOST_ATTEMPTS} times", ""),
    ],
)
def test_a_fault_of_a_cell_is_its_record(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: str, reason: str, log: str
) -> None:
    with_fault(monkeypatch, b4=fault)
    monkeypatch.setattr(attempt, "PATIENCE", 0.1)
    limits = QUICK if "hang" in fault or fault == "deaf" else StudyLimits()
    run(studies.study(resolution=(8,), limits=limits), tmp_path)
    found = by_batch(tmp_path)
    assert [found[batch].state for batch in (1, 4)] == ["done", "failed"]
    assert (found[4].reason, found[4].log) == (reason, log)
    assert found[4].comparison == ""
    place = StudyFolder(tmp_path / "tiny")
    left = place.cells / found[4].environment / found[4].key
    assert [path.name for path in left.iterdir()] == ["cell.json"]
    assert found[16].state == "done"
    assert soon(lambda: mentioning(str(tmp_path / "tiny")) == [])


def test_what_was_measured_before_a_process_hung_at_its_end_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with_fault(monkeypatch, b1="late")
    run(msgspec.structs.replace(ONE, limits=QUICK), tmp_path)
    assert by_batch(tmp_path)[1].state == "done"


def test_a_cell_that_something_ended_is_measured_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with_fault(monkeypatch, b1="killed")

    class Mending(Heard):
        def lost(self, cell: object, reason: str) -> None:
            self.again.append(reason)
            with_fault(monkeypatch)

    heard = Mending()
    run(ONE, tmp_path, heard)
    assert heard.again == ["its process was ended by SIGKILL"]
    assert by_batch(tmp_path)[1].state == "done"


# ---------------------------------------------------------------- memory


@pytest.mark.slow
def test_cells_certain_to_need_too_much_are_skipped_unless_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with_fault(monkeypatch, b4="out of memory")
    heard = Heard()
    run(studies.study(resolution=(8,)), tmp_path, heard)
    assert [cell.batch for cell in heard.began_with] == [1, 16, 4]  # 16 fitted, so it was measured
    study = studies.study(batch=(1, 4, 32), resolution=(8,))
    heard = Heard()
    run(study, tmp_path, heard)
    assert heard.began_with == []
    assert by_batch(tmp_path)[32].state == "skipped"
    assert "memory already ran out at a batch of 4 at 8x8" in by_batch(tmp_path)[32].reason
    heard = Heard()
    run(study, tmp_path, heard)  # judged again, with the same end
    assert (heard.records, heard.outlooks[0].left) == ([], 0)
    run(study, tmp_path, heard, skip=False)
    assert [cell.batch for cell in heard.began_with] == [32]
    assert by_batch(tmp_path)[32].state == "done"


def test_what_two_cells_needed_skips_a_third(tmp_path: Path) -> None:
    limits = StudyLimits(memory="1 MiB")  # of 1000 bytes a pixel
    study = studies.study(batch=(2, 4, 30), resolution=(8,), limits=limits)
    run(msgspec.structs.replace(study, batch=(2, 4)), tmp_path)
    run(study, tmp_path)
    assert by_batch(tmp_path)[30].state == "skipped"
    assert "are allowed" in by_batch(tmp_path)[30].reason
    run(msgspec.structs.replace(study, limits=StudyLimits(memory="2 MiB")), tmp_path)
    assert by_batch(tmp_path)[30].state == "done"  # with a larger limit it is not certain any more


# ---------------------------------------------------------------- the end of a study


@pytest.mark.slow
def test_a_budget_ends_it_and_the_next_run_goes_on(tmp_path: Path) -> None:
    heard = Heard()
    run(studies.study(), tmp_path, heard, budget=0.0)
    assert heard.began_with == []
    run(studies.study(), tmp_path, heard)
    assert len(studies.records(tmp_path)) == 6


@pytest.mark.slow
@pytest.mark.parametrize("signals", [1, 2])
def test_ctrl_c_ends_the_cell_in_flight_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, signals: int
) -> None:
    with_fault(monkeypatch, b16="hang with a worker")
    study = subprocess.Popen(
        [
            sys.executable,
            "-c",
            f"from support.records import studies\nstudies.run(studies.study(), {path(tmp_path)})",
        ],
        cwd=TESTS,
        stderr=subprocess.PIPE,
        text=True,
    )
    drafts = str(tmp_path / "tiny" / "drafts")
    assert soon(lambda: len(mentioning(drafts)) == 2)  # the cell's process and its worker
    for _ in range(signals):
        study.send_signal(signal.SIGINT)
    assert "KeyboardInterrupt" in study.communicate(timeout=30)[1]
    before = measured(tmp_path)
    assert before
    assert soon(lambda: mentioning(str(tmp_path / "tiny")) == [])
    with_fault(monkeypatch)
    heard = Heard()
    run(studies.study(), tmp_path, heard)
    assert len(heard.began_with) == 6 - len(before)
    assert len(studies.records(tmp_path)) == 6


def path(folder: Path) -> str:
    return f"studies.Path({str(folder)!r})"


def measured(folder: Path) -> list[Path]:
    return list((folder / "tiny" / "cells").glob("*/*/cell.json"))


def test_a_full_disk_that_a_cell_meets_ends_the_study_and_is_no_record(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with_fault(monkeypatch, b16="full disk")
    with pytest.raises(GolowError, match="the disk is full") as raised:
        run(studies.study(resolution=(8,)), tmp_path)
    assert "resume" in raised.value.hint
    assert list(by_batch(tmp_path)) == [1]
    with_fault(monkeypatch)
    run(studies.study(resolution=(8,)), tmp_path)
    assert sorted(by_batch(tmp_path)) == [1, 4, 16]


@pytest.mark.slow
def test_a_full_disk_that_the_study_meets_leaves_no_half_of_a_cell(tmp_path: Path) -> None:
    """From the second cell on no file of the study may have a byte."""

    class Filling(Heard):
        def ended(self, record: object, outlook: object) -> None:
            resource.setrlimit(resource.RLIMIT_FSIZE, (0, resource.RLIM_INFINITY))

    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    ignored = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    try:
        with pytest.raises(GolowError, match="File too large") as raised:
            run(studies.study(), tmp_path, Filling())
        assert "resume" in raised.value.hint
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, ignored)
    assert len(studies.records(tmp_path)) == 1
    run(studies.study(), tmp_path)
    assert len(studies.records(tmp_path)) == 6


# ---------------------------------------------------------------- several at a time


def test_jobs_have_disjoint_cores_and_bring_the_same_records(tmp_path: Path) -> None:
    if len(os.sched_getaffinity(0)) < 2:
        pytest.skip("one core")
    at = places("cpu", jobs=2)
    first, second = (set(place.environment.affinity) for place in at)
    assert first and second and not first & second
    run(studies.study(), tmp_path, at=at)
    assert len(studies.records(tmp_path)) == 6


# ---------------------------------------------------------------- unlike machines


def test_cells_of_unlike_machines_are_kept_apart(tmp_path: Path) -> None:
    [here] = places("cpu")
    other = msgspec.structs.replace(here.environment, cpu_model="another")
    same = msgspec.structs.replace(here.environment, kernel="another")
    run(ONE, tmp_path, at=[here])
    run(ONE, tmp_path, at=[here._replace(environment=same)])
    assert len(StudyFolder(tmp_path / "tiny").environments()) == 1
    run(ONE, tmp_path, at=[here._replace(environment=other)])
    place = StudyFolder(tmp_path / "tiny")
    assert [len(place.records(name)) for name in place.environments()] == [1, 1]


def test_what_cannot_be_read_is_measured_again(tmp_path: Path) -> None:
    run(ONE, tmp_path)
    [file] = measured(tmp_path)
    file.write_text("{")
    assert studies.records(tmp_path) == {}
    run(ONE, tmp_path)
    assert len(studies.records(tmp_path)) == 1


@pytest.mark.slow
def test_a_study_that_is_run_is_not_run_twice_at_a_time(tmp_path: Path) -> None:
    with (
        StudyFolder(tmp_path / "tiny").held(),
        pytest.raises(GolowError, match="another golow is running the study"),
    ):
        run(ONE, tmp_path)


@pytest.mark.slow
def test_a_changed_study_keeps_the_cells_that_it_still_has(tmp_path: Path) -> None:
    study: Study = studies.study()
    run(study, tmp_path)
    heard = Heard()
    run(msgspec.structs.replace(study, batch=(4, 16, 64)), tmp_path, heard)
    assert {cell.batch for cell in heard.began_with} == {64}
    assert len(studies.records(tmp_path)) == 8


@pytest.mark.slow
def test_on_an_old_kernel_the_end_of_a_cell_is_seen_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def missing(process: int) -> int:
        raise OSError(38, "Function not implemented")

    monkeypatch.setattr(os, "pidfd_open", missing)
    run(ONE, tmp_path)
    assert len(studies.records(tmp_path)) == 1
