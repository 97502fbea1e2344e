"""A study in one function: axes -> cells, and a comparison for each cell that is not there yet.

`run_study` reads as the table of contents: read, lay out, find what is there, measure the rest.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from golow.data.places import default_cache
from golow.record import Comparison, Device, Environment, GolowError
from golow.study.attempt import PROGRAM
from golow.study.cells import cells, key
from golow.study.file import built_in, read_study
from golow.study.local import LocalExecutor
from golow.study.loop import Executor, SilentStudy, StudyObserver, StudyRun
from golow.study.places import MOST_ON_A_CARD, places
from golow.study.record import Cell, CellRecord, Study
from golow.study.store import StudyFolder

STUDIES = Path("runs/studies")


class StudyResult(NamedTuple):
    """A study as far as it has come, in one environment.

    asked: every cell, in the order of measuring; records: those that have one, by key.
    environments: of all cells in the folder, by name, and how many each has.
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

    def comparison(self, record: CellRecord) -> Comparison:
        """What was measured in a cell that is done."""
        return StudyFolder(self.folder).comparison(record)

    def comparisons(self) -> Iterator[Comparison]:
        """Of all cells that are done, in the order of the study."""
        for cell in self.asked:
            record = self.records.get(key(cell))
            if record is not None and record.state == "done":
                yield self.comparison(record)


def run_study(
    study: str | Path | Study,
    *,
    device: Device | None = None,
    out: str | Path = STUDIES,
    jobs: int = 1,
    ray: str | None = None,
    skip: bool = True,
    budget: float | None = None,
    observer: StudyObserver | None = None,
    program: Sequence[str] = PROGRAM,
) -> StudyResult:
    """Measure every cell of a study that has no record yet; what happens to a cell is its record.

    study: a name that `golow study list` lists, a TOML file, or a `Study`. device: instead of the
    study's own. out: the folder of studies, in which this one has its folder. jobs: so many cells
    at a time, on different GPUs or disjoint cores. ray: ``auto`` or the address of a Ray cluster,
    which then measures. skip: cells that are certain to need too much memory are not tried.
    budget: seconds after which no further cell is begun. program: what Python runs for a cell.

    Calling it again goes on: after an interruption the cell in flight is lost, and nothing else.
    Raises `GolowError` for what the caller can mend, such as a full disk.
    """
    observer = observer or SilentStudy()
    asked_for = find_study(study, Path(out), device)
    folder = StudyFolder(Path(out) / asked_for.name)
    with folder.held():
        folder.write_study(asked_for)
        with executor(asked_for, folder, jobs, ray, observer, program) as chosen:
            order = cells(asked_for, len(chosen.environment.affinity))
            run = StudyRun(asked_for, order, folder, chosen, observer, skip)
            run.run(budget)
    return load_study(folder.path, run.environment)


def find_study(study: str | Path | Study, out: Path, device: Device | None = None) -> Study:
    """The study that is meant; raises `GolowError` with what there is where there is none."""
    if isinstance(study, Study):
        return study
    known = built_in()
    if str(study).endswith(".toml"):
        return read_study(Path(study), device)
    if str(study) in known:
        return read_study(known[str(study)], device)
    if (out / study / "study.toml").is_file():
        return read_study(out / study / "study.toml", device)
    near = difflib.get_close_matches(str(study), known, n=1)
    raise GolowError(
        f"there is no study {str(study)!r}",
        (f"did you mean {near[0]}? " if near else "")
        + f"built in are {', '.join(known)}; your own is a file that ends with .toml.",
    )


@contextmanager
def executor(
    study: Study,
    folder: StudyFolder,
    jobs: int,
    ray: str | None,
    observer: StudyObserver,
    program: Sequence[str],
) -> Iterator[Executor]:
    """Who measures the cells: this machine, or a Ray cluster."""
    if ray is not None:
        from golow.study.cluster import RayExecutor

        if jobs != 1:
            raise GolowError("--jobs is for this machine alone", "leave it out with --ray.")
        with RayExecutor(ray, study, folder.draft, program) as cluster:
            yield cluster
        return
    # A study of thread counts is about the cores: each cell has all that its card can have.
    most_on_a_card = 1 if study.threads else MOST_ON_A_CARD
    with LocalExecutor(
        places(study.device, jobs, most_on_a_card),
        study.name,
        default_cache(),
        folder.draft,
        study.limits.cell_seconds,
        observer,
        program,
    ) as local:
        yield local


def load_study(folder: str | Path, environment: str | None = None) -> StudyResult:
    """The study in that folder, as far as it has come.

    environment: the name of the one whose cells are wanted; the one with the most cells unless
    given. Raises `GolowError` where there is no such study or environment.
    """
    place = StudyFolder(Path(folder))
    study = stored_study(place.path)
    found = [_measured_in(place, study, *item) for item in place.environments().items()]
    counts = {result.environment: len(result.records) for result in found}
    named = [result for result in found if environment in (None, result.environment)]
    if not named:
        raise GolowError(
            f"{place.path} has no cell " + (f"of {environment}" if environment else "yet"),
            f"its environments: {', '.join(counts) or 'none'}.",
        )
    fullest = max(named, key=lambda result: len(result.records))
    return fullest._replace(environments=counts)


def stored_study(folder: Path) -> Study:
    """What was asked in that folder last; raises `GolowError` where there is no study."""
    file = StudyFolder(folder).file
    if not file.is_file():
        raise GolowError(
            f"there is no study in {folder}", "`golow study list` lists them; --out says where."
        )
    return read_study(file)


def _measured_in(
    place: StudyFolder, study: Study, environment: str, machine: Environment
) -> StudyResult:
    asked = tuple(cells(study, len(machine.affinity)))
    there = place.records(environment)
    return StudyResult(
        study=study,
        folder=place.path,
        environment=environment,
        machine=machine,
        asked=asked,
        records={name: there[name] for name in map(key, asked) if name in there},
        environments={},
    )
