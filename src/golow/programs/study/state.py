"""The state of a study: the requested cells and the records in its folder."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from golow.programs.study.cells import cells, key
from golow.programs.study.file import read_study
from golow.programs.study.store import StudyFolder
from golow.programs.study.study_record import Cell, CellRecord, Study
from golow.records.comparison import Environment
from golow.records.errors import GolowError
from golow.storage.files import is_file


class StudyState(NamedTuple):
    """A study in one environment.

    asked: every cell, in measuring order. records: of the cells that have one, by key.
    environments: every environment in the folder, name -> number of cells.
    """

    study: Study
    folder: Path
    environment: str
    machine: Environment
    asked: tuple[Cell, ...]
    records: dict[str, CellRecord]
    environments: dict[str, int]

    @property
    def waiting(self) -> tuple[Cell, ...]:
        """The cells that have no record yet."""
        return tuple(cell for cell in self.asked if key(cell) not in self.records)

    @property
    def unclear(self) -> tuple[Cell, ...]:
        """The cells in which a level was timed in too few rounds for a conclusion."""
        return tuple(
            cell
            for cell in self.asked
            if (record := self.records.get(key(cell))) is not None and record.state == "unclear"
        )


def read_state(folder: Path, environment: str | None = None) -> StudyState:
    """The study in that folder.

    environment: its name; None means the one with the most cells. Raises `GolowError` if there is
    no such study or environment.
    """
    place = StudyFolder(folder)
    study = stored_study(folder)
    found = [_measured_in(place, study, *item) for item in place.environments().items()]
    counts = {state.environment: len(state.records) for state in found}
    named = [state for state in found if environment in (None, state.environment)]
    if not named:
        raise GolowError(
            f"{place.path} has no cell " + (f"of {environment}" if environment else "yet"),
            f"its environments: {', '.join(counts) or 'none'}.",
        )
    fullest = max(named, key=lambda state: len(state.records))
    return fullest._replace(environments=counts)


def stored_study(folder: Path) -> Study:
    """The latest request in that folder; raises `GolowError` if there is no study."""
    file = StudyFolder(folder).file
    if not is_file(file):
        raise GolowError(
            f"there is no study in {folder}", "`golow study list` lists the studies of a folder."
        )
    return read_study(file)


def _measured_in(
    place: StudyFolder, study: Study, environment: str, machine: Environment
) -> StudyState:
    asked = tuple(cells(study, len(machine.affinity)))
    there = place.records(environment)
    return StudyState(
        study=study,
        folder=place.path,
        environment=environment,
        machine=machine,
        asked=asked,
        records={name: there[name] for name in map(key, asked) if name in there},
        environments={},
    )
