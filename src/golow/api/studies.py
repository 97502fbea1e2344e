"""Studies for Python users."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from golow.api.line import count, line
from golow.api.progress import shown_progress
from golow.programs.generation.generation_record import Generation
from golow.programs.load.load_record import LoadTest
from golow.programs.study.attempt import PROGRAM
from golow.programs.study.cells import key
from golow.programs.study.observer import StudyObserver
from golow.programs.study.run import STUDIES, find_study
from golow.programs.study.run import run_study as measure_study
from golow.programs.study.settings import StudySettings
from golow.programs.study.state import StudyState, read_state
from golow.programs.study.store import StudyFolder
from golow.programs.study.study_record import Cell, CellRecord, Study
from golow.records.comparison import Comparison
from golow.records.workload import Device


class StudyResult(StudyState):
    """Result of `run_study`: the current state of a study in one environment.

    asked: every cell, in the order of measuring; records: of the cells that have one, by key.
    environments: of all cells in the folder, by name, with the number of cells.
    """

    __slots__ = ()

    def __repr__(self) -> str:
        done = f"{len(self.records)} of {count(len(self.asked), 'cell')}"
        return line(self, f"study {self.study.name}", done)

    def _repr_html_(self) -> str:
        """HTML for a notebook."""
        from golow.report.notebook import as_html
        from golow.report.study.rows import Measured, rows_of
        from golow.report.study.table import render
        from golow.report.study_grids import grid_of

        if not self.study.is_compared:
            grid = grid_of(self.study, self.others())
            return as_html(lambda console: console.print(grid.table))
        cells = [
            Measured(record, self.comparison(record) if record.is_measured else None)
            for record in self.records.values()
        ]
        return as_html(lambda console: render(rows_of(self.study.name, cells), console))

    def report(self, file: str | Path, reference: str = "") -> Path:
        """Write one HTML page that shows the study and contains its records. reference: the name
        of published results to show beside it."""
        from golow.report.html_report import write_report

        return write_report([self.folder], Path(file), reference)

    def comparison(self, record: CellRecord) -> Comparison:
        """Return the comparison of a cell that is done or unclear."""
        return StudyFolder(self.folder).comparison(record)

    def load_tests(self) -> Iterator[tuple[Cell, LoadTest]]:
        """Yield the load tests of all cells that are done, with their cells, in the order of the
        study; nothing if its cells are comparisons."""
        folder = StudyFolder(self.folder)
        for cell, record in self._measured():
            if cell.load is not None:
                yield cell, folder.load_test(record)

    def generations(self) -> Iterator[tuple[Cell, Generation]]:
        """Yield the text generations of all cells that are done, as `load_tests` does."""
        folder = StudyFolder(self.folder)
        for cell, record in self._measured():
            if cell.generation is not None:
                yield cell, folder.generation(record)

    def others(self) -> list[tuple[Cell, LoadTest]] | list[tuple[Cell, Generation]]:
        """Return the load tests or generations of a study whose cells are no comparisons."""
        if self.study.load is not None:
            return list(self.load_tests())
        return list(self.generations())

    def comparisons(self) -> Iterator[Comparison]:
        """Yield the comparisons of all cells that are done or unclear, in the order of the
        study."""
        for _, record in self._measured():
            yield self.comparison(record)

    def _measured(self) -> Iterator[tuple[Cell, CellRecord]]:
        for cell in self.asked:
            record = self.records.get(key(cell))
            if record is not None and record.is_measured:
                yield cell, record


def run_study(
    study: str | Path | Study,
    *,
    device: Device | None = None,
    out: str | Path = STUDIES,
    jobs: int = 1,
    ray: str | None = None,
    skip: bool = True,
    refine: bool = False,
    budget: float | None = None,
    trust: bool = False,
    quiet: bool = False,
    observer: StudyObserver | None = None,
    program: Sequence[str] = PROGRAM,
) -> StudyResult:
    """Measure every cell of a study that has no record yet; a failure of a cell is recorded too.

    study: a name that `golow study list` lists, a TOML file, or a `Study`. device: instead of the
    study's own. out: the folder of studies, in which this one has its folder. jobs: number of cells
    to measure at a time, on different GPUs or disjoint cores. ray: ``auto`` or the address of a Ray
    cluster that measures. skip: do not try cells that are certain to need too much memory. refine:
    measure cells with too few rounds again with more time, and keep the better result. budget:
    seconds after which no further cell starts. trust: also run the code of a study under ``out``
    that another user may have written. program: the Python program for a cell. Another call
    continues the study: an interruption loses only the cell in progress. Raises `GolowError` for
    errors that the caller can fix, such as a full disk.
    """
    settings = StudySettings(
        jobs=jobs, ray=ray, skip=skip, refine=refine, budget=budget, program=program
    )
    asked = find_study(study, Path(out), device, trust)
    with shown_progress("study", observer, quiet) as display:
        return StudyResult(*measure_study(asked, Path(out), settings, display))


def load_study(folder: str | Path, environment: str | None = None) -> StudyResult:
    """Load the current state of the study in that folder. environment: name of the environment
    whose cells to load; by default the one with the most cells. Raises `GolowError` if there is no
    such study or environment.
    """
    return StudyResult(*read_state(Path(folder), environment))
