"""Cells with too few rounds are unclear; a longer race replaces them only where it is better, and
nothing that was measured is lost."""

from __future__ import annotations

import json
import multiprocessing
import os
import random
import signal
from pathlib import Path

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from golow.api import load_study
from golow.commands.study import study_app
from golow.measure.words import LEAST_ROUNDS
from golow.programs.comparison.store import Timed, save, timed
from golow.programs.study.places import places
from golow.programs.study.refining import is_better, with_more_time
from golow.programs.study.store import StudyFolder
from golow.programs.study.study_record import CellRecord, StudyLimits
from golow.records.comparison import Comparison
from support.examples import examples
from support.processes import mentioning, soon
from support.records import studies
from support.records.studies import Heard, records, run

ONE = studies.study(batch=(1,), resolution=(8,))
FORK = multiprocessing.get_context("fork")


def brings(
    patch: pytest.MonkeyPatch, folder: Path, first: Comparison, longer: Comparison | None = None
) -> None:
    """What the cells bring: at first, and in a longer race."""
    patch.setenv("CELL_COMPARISON", str(studies.made_comparison(folder / "first", first)))
    if longer is not None:
        patch.setenv("CELL_LONGER", str(studies.made_comparison(folder / "longer", longer)))


FEW = studies.comparison(rounds=(3, 2), seconds=44.0)
ENOUGH = studies.comparison("20261120-110000", rounds=(10, 10))


@pytest.fixture
def few(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    brings(monkeypatch, tmp_path, FEW, ENOUGH)


def only(folder: Path) -> CellRecord:
    [record] = records(folder).values()
    return record


def measured(folder: Path) -> Comparison:
    return StudyFolder(folder / "tiny").comparison(only(folder))


# ---------------------------------------------------------------- the state


@examples(25)
@given(
    rounds=st.tuples(st.integers(0, 8), st.integers(0, 8)),
    matches=st.tuples(st.booleans(), st.booleans()),
)
def test_a_cell_is_unclear_where_a_level_has_too_few_rounds(
    tmp_path_factory: pytest.TempPathFactory, rounds: tuple[int, int], matches: tuple[bool, bool]
) -> None:
    folder = tmp_path_factory.mktemp("study")
    made = studies.comparison(rounds=rounds)
    runs = tuple(
        msgspec.structs.replace(
            each,
            check=msgspec.structs.replace(each.check, verdict="match" if fine else "differs"),
        )
        for each, fine in zip(made.runs, matches, strict=True)
    )
    made = msgspec.structs.replace(made, runs=runs)
    place = StudyFolder(folder / "tiny")
    place.write_study(ONE)
    [cell] = studies.cells(ONE, 1)
    record = studies.recorded(cell, made.id)
    draft = place.draft()
    save(made, draft)
    kept = place.keep(record, draft)
    raced = [n for n, fine in zip(rounds, matches, strict=True) if fine and n]
    assert kept.state == ("unclear" if raced and min(raced) < LEAST_ROUNDS else "done")
    assert place.records("here") == {record.key: kept}
    on_disk = json.loads((place.cells / "here" / record.key / "cell.json").read_text())
    assert on_disk["state"] == "done"  # an older golow reads it


def test_an_unclear_cell_is_counted_and_shown_as_a_word(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, few: None
) -> None:
    heard = Heard()
    run(ONE, tmp_path, heard)
    assert [record.state for record in heard.records] == ["unclear"]
    monkeypatch.chdir(tmp_path)

    def said(*words: str) -> str:
        done = CliRunner().invoke(study_app, [*words, "--out", "."], catch_exceptions=False)
        assert done.exit_code == 0
        return done.output

    assert "1 cells: 0 done, 1 unclear, 0 failed, 0 skipped, 0 waiting" in said("status", "tiny")
    assert "1 of 1 cells, 1 unclear" in " ".join(said("list").split())
    shown = said("show", "tiny")
    assert shown.count("unclear") == 2 and "0.50" not in shown
    assert "unclear: too few rounds for a conclusion" in shown
    assert "1 cell has too few rounds" in shown and "golow study resume tiny --refine" in shown
    result = load_study("tiny")
    assert [cell.batch for cell in result.unclear] == [1] and result.waiting == ()
    assert list(result.comparisons()) == [FEW]


# ---------------------------------------------------------------- a longer race


@settings(deadline=None)
@given(
    seconds=st.floats(1e-3, 1e3),
    rounds=st.lists(st.integers(1, 4), min_size=1, max_size=3),
    race=st.floats(1e-3, 1e4),
)
def test_a_longer_race_has_time_for_enough_rounds(
    seconds: float, rounds: list[int], race: float
) -> None:
    [cell] = studies.cells(studies.study(batch=(1,), resolution=(8,)), 1)
    cell = msgspec.structs.replace(cell, seconds=seconds)
    before = Timed(race, {str(n): count for n, count in enumerate(rounds)})
    longer = with_more_time(studies.recorded(cell, "a"), before)
    assert longer.seconds >= 2 * seconds
    assert longer.seconds / (race / min(rounds)) > LEAST_ROUNDS
    assert msgspec.structs.replace(longer, seconds=seconds) == cell


@pytest.mark.slow
def test_refining_replaces_unclear_cells_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, few: None
) -> None:
    asked = studies.study(batch=(1, 4), resolution=(8,))
    run(ONE, tmp_path)
    brings(monkeypatch, tmp_path / "other", ENOUGH)
    run(asked, tmp_path)  # without --refine an unclear cell is left alone
    states = {record.cell.batch: record.state for record in records(tmp_path).values()}
    assert states == {1: "unclear", 4: "done"}
    before = {record.cell.batch: record for record in records(tmp_path).values()}
    heard = Heard()
    run(asked, tmp_path, heard, refine=True)
    assert [(cell.batch, cell.seconds) for cell in heard.began_with] == [(1, 10.0)]
    assert [(record.cell.batch, record.state) for record in heard.records] == [(1, "done")]
    after = {record.cell.batch: record for record in records(tmp_path).values()}
    assert after[4] == before[4]
    assert (after[1].key, after[1].cell) == (before[1].key, before[1].cell)
    place = StudyFolder(tmp_path / "tiny")
    assert place.comparison(after[1]) == ENOUGH
    folder = place.cells / after[1].environment / after[1].key
    assert {path.name for path in folder.iterdir()} == {"cell.json", ENOUGH.id}
    run(asked, tmp_path, heard, refine=True)
    assert len(heard.began_with) == 1  # there is nothing left to refine


@pytest.mark.parametrize(
    ("rounds", "better"),
    [
        ((2, 2), False),
        ((4, 2), False),
        ((3, 0), False),
        ((3, 3), True),
        ((5, 5), True),
    ],
)
def test_what_is_not_better_does_not_replace(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rounds: tuple[int, int], better: bool
) -> None:
    longer = studies.comparison("20261120-110000", rounds=rounds)
    brings(monkeypatch, tmp_path, FEW, longer)
    run(ONE, tmp_path)
    heard = Heard()
    run(ONE, tmp_path, heard, refine=True)
    assert measured(tmp_path) == (longer if better else FEW)
    [told] = heard.records
    assert ("the earlier record is kept: no more rounds" in told.reason) is not better
    assert only(tmp_path).reason == ""


@pytest.mark.parametrize("fault", ["crash", "refused", "out of memory", "killed"])
def test_a_longer_race_that_fails_loses_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, few: None, fault: str
) -> None:
    run(ONE, tmp_path)
    before = only(tmp_path)
    monkeypatch.setenv("CELL_FAULTS", json.dumps({"1": f"{fault} when refined"}))
    heard = Heard()
    run(ONE, tmp_path, heard, refine=True)
    assert only(tmp_path) == before and measured(tmp_path) == FEW
    assert "the earlier record is kept: " in heard.records[-1].reason
    assert heard.records[-1].state == "unclear"


@pytest.mark.slow
def test_a_cell_may_take_as_much_longer_as_its_race(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    brings(monkeypatch, tmp_path, studies.comparison(rounds=(2, 2), seconds=20.0), ENOUGH)
    monkeypatch.setenv("CELL_FAULTS", json.dumps({"1": "a second late when refined"}))
    asked = msgspec.structs.replace(ONE, limits=StudyLimits(cell_seconds=0.5))
    run(asked, tmp_path)
    heard = Heard()
    run(asked, tmp_path, heard, refine=True)  # the race has 100 s instead of 10
    assert measured(tmp_path) == ENOUGH


def test_the_same_name_for_both_comparisons_is_no_loss(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    brings(monkeypatch, tmp_path, FEW, studies.comparison(rounds=(6, 6)))
    run(ONE, tmp_path)
    run(ONE, tmp_path, refine=True)
    assert [len(run.blocks) for run in measured(tmp_path).runs] == [6, 6]


def test_better_means_that_no_level_is_lost() -> None:
    before = Timed(1.0, {"eager": 2, "torchscript": 2})
    assert is_better(Timed(1.0, {"eager": 3, "torchscript": 3, "compile": 3}), before)
    assert not is_better(Timed(1.0, {"eager": 9}), before)
    assert not is_better(Timed(1.0, {"eager": 9, "torchscript": 2}), before)


# ---------------------------------------------------------------- interruptions


@pytest.mark.slow
def test_kills_while_refining_lose_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, few: None
) -> None:
    """kill -9 at random moments: a cell always has the one or the other comparison, whole."""
    asked = studies.study(batch=(1, 2, 3, 4, 5), resolution=(8,))
    at, draw = places("cpu"), random.Random(3)  # noqa: S311
    place = StudyFolder(tmp_path / "tiny")
    run(asked, tmp_path, at=at)
    monkeypatch.setenv("CELL_SECONDS", "0.005")
    kills = 0
    while any(record.state == "unclear" for record in records(tmp_path).values()):
        study = FORK.Process(target=run, args=(asked, tmp_path), kwargs={"at": at, "refine": True})
        study.start()
        study.join(draw.uniform(0, 0.2 + 0.1 * kills))  # a busy machine needs longer
        kills += study.is_alive()
        study.kill()
        study.join()
        found = records(tmp_path)
        assert len(found) == 5
        for record in found.values():
            name = FEW if record.state == "unclear" else ENOUGH
            assert place.comparison(record) == name
    assert kills
    run(asked, tmp_path, at=at, refine=True)
    for file in place.cells.glob("*/*/cell.json"):
        assert sorted(path.name for path in file.parent.iterdir()) == [ENOUGH.id, "cell.json"]


@pytest.mark.slow
def test_ctrl_c_while_refining_loses_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, few: None
) -> None:
    run(ONE, tmp_path)
    monkeypatch.setenv("CELL_SECONDS", "1000")
    study = FORK.Process(target=run, args=(ONE, tmp_path), kwargs={"refine": True})
    study.start()
    assert study.pid is not None
    assert soon(lambda: mentioning(str(studies.CELL)) != [])
    os.kill(study.pid, signal.SIGINT)
    study.join()
    assert study.exitcode
    assert measured(tmp_path) == FEW and only(tmp_path).state == "unclear"
    assert soon(lambda: mentioning(str(tmp_path / "tiny")) == [])
    assert list((tmp_path / "tiny").glob("drafts/*")) == []


def test_rounds_are_counted_without_the_samples(tmp_path: Path) -> None:
    folder = save(FEW, tmp_path)
    assert timed(folder) == Timed(44.0, {"eager": 3, "torchscript": 2})
