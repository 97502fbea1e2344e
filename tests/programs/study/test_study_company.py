"""Cells beside one another on one card: as many as its memory has room for, and no verdict of
memory that another cell could have caused."""

from __future__ import annotations

import json
import os
import signal
import tempfile
from pathlib import Path
from typing import Any

import msgspec
import pytest

from golow.measure.environment import environment
from golow.measure.gpu.cards import CardFacts
from golow.programs.study import places as places_module
from golow.programs.study.attempt import Attempt, Lost
from golow.programs.study.forecast import Outlook
from golow.programs.study.local import LocalExecutor
from golow.programs.study.loop import Finished
from golow.programs.study.memory import WORKERS_OWN_BYTES, held_bytes
from golow.programs.study.observer import SilentStudy
from golow.programs.study.places import CORES_A_CELL, MOST_ON_A_CARD, TURNS, Place, places
from golow.programs.study.study_record import Cell, CellRecord, Machine, StudyLimits
from support.records import studies
from support.records.studies import Heard, records, run, study

GIB = 2**30


def on_one_card(count: int, memory_bytes: int) -> list[Place]:
    machine = Machine(host="here", device="a card", uuid="GPU-1")
    turns = {TURNS: "where cells that measure nothing take no turns"} if count > 1 else {}
    return [Place(("GPU-1",), machine, environment(), turns, memory_bytes) for _ in range(count)]


class Together(Heard):
    """Counts the cells that are being measured at the same time."""

    def __init__(self) -> None:
        super().__init__()
        self.now: list[Cell] = []
        self.most = 0
        self.company: dict[int, list[int]] = {}

    def began(self, cell: Cell) -> None:
        super().began(cell)
        self.now.append(cell)
        self.most = max(self.most, len(self.now))
        self.company.setdefault(cell.batch, []).append(len(self.now) - 1)

    def lost(self, cell: Cell, reason: str) -> None:
        super().lost(cell, reason)
        self.now.remove(cell)

    def ended(self, record: CellRecord, outlook: Outlook) -> None:
        super().ended(record, outlook)
        self.now = [cell for cell in self.now if cell != record.cell]


@pytest.fixture(autouse=True)
def made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    comparison = studies.made_comparison(tmp_path / "comparison")
    monkeypatch.setenv("CELL_COMPARISON", str(comparison))
    monkeypatch.setenv("CELL_SECONDS", "0.2")


@pytest.mark.slow
@pytest.mark.parametrize(("memory", "most"), [(100 * GIB, 4), (5 * GIB, 2), (GIB, 1)])
def test_as_many_as_the_memory_has_room_for(tmp_path: Path, memory: int, most: int) -> None:
    """Each of these holds little more than what its two workers hold themselves."""
    observer = Together()
    run(study(), tmp_path, observer, on_one_card(4, memory))
    assert observer.most == most
    assert {record.state for record in records(tmp_path).values()} == {"done"}


LARGE = 2**16  # a batch at 8x8 whose two workers would hold about 5 GiB


@pytest.mark.slow
def test_a_cell_that_has_to_wait_for_room_is_overtaken(tmp_path: Path) -> None:
    asked, observer = study(batch=(1, 4, 16, LARGE), resolution=(8,)), Together()
    assert [cell.batch for cell in studies.cells(asked, 1)] == [1, LARGE, 4, 16]
    run(asked, tmp_path, observer, on_one_card(4, 7 * GIB))  # the small ones together, or it
    assert [cell.batch for cell in observer.began_with] == [1, 4, 16, LARGE]
    assert observer.company[LARGE] == [0]


@pytest.mark.slow
@pytest.mark.parametrize(("skip", "state"), [(True, "skipped"), (False, "done")])
def test_what_may_be_too_large_waits_for_what_will_tell(
    tmp_path: Path, skip: bool, state: str
) -> None:
    limits = StudyLimits(cell_seconds=60.0, memory="1 GiB")
    asked = study(batch=(1, LARGE // 16, LARGE // 8, LARGE), resolution=(8,), limits=limits)
    observer = Together()
    run(asked, tmp_path, observer, on_one_card(4, 100 * GIB), skip=skip)
    large = next(r for r in records(tmp_path).values() if r.cell.batch == LARGE)
    assert large.state == state
    small = [LARGE // 16, LARGE // 8]
    began = [cell.batch for cell in observer.began_with]
    assert began == ([1, *small] if skip else [1, LARGE, *small])


@pytest.fixture
def full(monkeypatch: pytest.MonkeyPatch) -> None:
    """Memory runs out at a batch of 4."""
    monkeypatch.setenv("CELL_FAULTS", json.dumps({"4": "out of memory"}))


@pytest.mark.slow
@pytest.mark.usefixtures("full")
def test_memory_that_ran_out_in_company_is_tried_alone(tmp_path: Path) -> None:
    observer = Together()
    run(study(resolution=(8,)), tmp_path, observer, on_one_card(3, 100 * GIB))
    assert observer.again == ["memory ran out while other cells used the device"]
    assert observer.company[4][-1] == 0, "the second try had company too"
    failed = [record for record in records(tmp_path).values() if record.state == "failed"]
    assert [record.cell.batch for record in failed] == [4]
    assert failed[0].out_of_memory == ("eager", "torchscript")


@pytest.mark.slow
@pytest.mark.usefixtures("full")
def test_memory_that_ran_out_alone_is_the_result_at_once(tmp_path: Path) -> None:
    observer = Heard()
    run(study(resolution=(8,)), tmp_path, observer, on_one_card(1, 100 * GIB))
    assert observer.again == []


def test_what_a_cell_holds_grows_with_its_levels_and_its_size() -> None:
    [small, *_, large] = studies.cells(study(), 1)
    assert 2 * WORKERS_OWN_BYTES < held_bytes(small, []) < held_bytes(large, [])


class Ahead(LocalExecutor):
    """Keeps every process that it has started."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.started: list[Attempt] = []

    def _process(self, place: Place) -> Attempt:
        self.started.append(super()._process(place))
        return self.started[-1]


def executor(folder: Path, at: list[Place]) -> Ahead:
    def drafts() -> Path:
        return Path(tempfile.mkdtemp(dir=folder))

    return Ahead(at, "tiny", folder / "cache", drafts, 60.0, SilentStudy(), studies.PROGRAM)


def ended(executor: LocalExecutor) -> Finished:
    while not (over := executor.wait()):
        pass
    return over[0]


@pytest.mark.slow
def test_on_a_shared_card_the_next_process_is_there_already(tmp_path: Path) -> None:
    first, second, *_ = studies.cells(study(), 1)
    with executor(tmp_path, on_one_card(2, 100 * GIB)[:1]) as at:
        for cell in (first, second):
            at.start(cell, 1)
            began, waiting = at.started[-2:]
            assert (began.cell, waiting.is_over()) == (cell, False)
            brought = ended(at).brought
            assert isinstance(brought, CellRecord) and brought.cell == cell
        assert len(at.started) == 3
    assert waiting.is_over(), "what waits for a cell outlives the study"
    assert not waiting.draft.exists()


@pytest.mark.slow
def test_a_process_that_dies_before_its_cell_costs_an_attempt_and_no_more(tmp_path: Path) -> None:
    cell = studies.cells(study(), 1)[0]
    with executor(tmp_path, on_one_card(2, 100 * GIB)[:1]) as at:
        at.start(cell, 1)
        ended(at)
        os.kill(at.started[-1].pid, signal.SIGKILL)
        at.start(cell, 1)
        assert ended(at).brought == Lost("its process was ended by SIGKILL")
        at.start(cell, 1)
        assert isinstance(ended(at).brought, CellRecord)


def test_where_nobody_shares_the_card_nothing_is_started_ahead(tmp_path: Path) -> None:
    with executor(tmp_path, on_one_card(1, 100 * GIB)) as at:
        at.start(studies.cells(study(), 1)[0], 1)
        ended(at)
        assert len(at.started) == 1


def test_places_on_a_card_have_cores_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    first = 10_000  # of which no machine knows which share a physical core
    cores = tuple(range(first, first + 2 * CORES_A_CELL * MOST_ON_A_CARD + 3))
    machine = msgspec.structs.replace(environment(), affinity=cores)
    cards = [CardFacts(f"GPU-{number}", "a card", 80 * GIB) for number in range(2)]
    monkeypatch.setattr(places_module, "environment", lambda: machine)
    monkeypatch.setattr(places_module, "visible_cards", lambda: cards)
    found = places("cuda", jobs=2)
    locks = [uuid for place in found for uuid in place.locks]
    assert locks == [card.uuid for card in cards for _ in range(MOST_ON_A_CARD)]
    taken = [core for place in found for core in place.environment.affinity]
    assert len(taken) == len(set(taken)) == len(found) * CORES_A_CELL
    assert len({place.variables[TURNS] for place in found}) == 2
    [whole] = places("cuda", most_on_a_card=1)
    assert whole.environment.affinity == cores
    assert TURNS not in whole.variables
