"""Studies whose cells measure nothing, for tests of what holds a study together."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from golow.measure.environment import environment
from golow.programs.comparison import store
from golow.programs.study.cells import cells, key
from golow.programs.study.forecast import Outlook
from golow.programs.study.local import LocalExecutor
from golow.programs.study.loop import StudyRun
from golow.programs.study.observer import SilentStudy, StudyObserver
from golow.programs.study.places import Place, places
from golow.programs.study.store import StudyFolder
from golow.programs.study.study_record import FORMAT_VERSION as STUDY_VERSION
from golow.programs.study.study_record import Cell, CellRecord, Study, StudyLimits
from golow.records.comparison import (
    Block,
    Check,
    Comparison,
    Conditions,
    Quantity,
    RaceSummary,
    Ratio,
    Run,
)
from golow.records.record import FORMAT_VERSION
from golow.records.workload import ModelSource, TensorType, Workload
from support.places import WORKERS

CELL = WORKERS / "cell.py"
PROGRAM = ("-S", "-E", str(CELL))  # without site-packages: it starts in a third of the time


def study(**changes: Any) -> Study:
    """Six cells of an mlp: batch 1, 4, 16 at 8x8 and 16x16."""
    asked: dict[str, Any] = {
        "name": "tiny",
        "model": ("mlp",),
        "levels": ("eager", "torchscript"),
        "batch": (1, 4, 16),
        "resolution": (8, 16),
        "threads": (1,),
        "limits": StudyLimits(cell_seconds=60.0),
    }
    return Study(**{**asked, **changes})


def comparison(
    created: str = "20261120-100000", rounds: tuple[int, int] = (10, 10), seconds: float = 1.0
) -> Comparison:
    """One of two levels, as `golow.compare` makes it. rounds: of each level, in so many seconds."""
    workload = Workload(
        model="mlp",
        source=ModelSource(kind="zoo", name="mlp"),
        mode="infer",
        batch=1,
        inputs=(TensorType(shape=(1, 1, 8, 8), dtype="float32"),),
    )
    machine = environment()
    runs = tuple(
        Run(
            format_version=FORMAT_VERSION,
            id=f"{created}-mlp/{level}",
            created=created,
            level=level,
            workload=workload,
            check=Check(verdict="match"),
            environment=machine,
            conditions=Conditions(
                threads=1, affinity=(0,), precision="default", wait_policy="default"
            ),
            blocks=tuple(Block(round=n, position=0, host_ns=(1000, 1001)) for n in range(count)),
            time=Quantity(name="time", unit="s", value=1e-6 * ratio, low=1e-6, high=2e-6),
            ratio=Ratio(value=ratio, low=ratio, high=ratio, word=word),
        )
        for (level, ratio, word), count in zip(
            (("eager", 1.0, "same"), ("torchscript", 0.5, "faster")), rounds, strict=True
        )
    )
    return Comparison(
        format_version=FORMAT_VERSION,
        id=f"{created}-mlp",
        created=created,
        workload=workload,
        race=RaceSummary(
            rounds=max(rounds),
            seed=0,
            stopped_because="interval",
            interval_target=0.02,
            seconds=seconds,
            contended_share=0.0,
        ),
        runs=runs,
    )


def made_comparison(folder: Path, made: Comparison | None = None) -> Path:
    """The folder of a comparison, for ``CELL_COMPARISON`` or ``CELL_LONGER``."""
    return store.save(made or comparison(), folder)


def recorded(cell: Cell, comparison: str) -> CellRecord:
    """A cell that is done, in the environment ``here``."""
    return CellRecord(
        format_version=STUDY_VERSION,
        key=key(cell),
        cell=cell,
        state="done",
        created="2026-11-20T10:00:00+00:00",
        seconds=60.0,
        environment="here",
        comparison=comparison,
    )


class Heard(SilentStudy):
    """Keeps what it was told."""

    def __init__(self) -> None:
        self.began_with: list[Cell] = []
        self.records: list[CellRecord] = []
        self.again: list[str] = []
        self.waits: list[tuple[str, str]] = []
        self.stages: list[str] = []
        self.outlooks: list[Outlook] = []

    def outlook(self, outlook: Outlook) -> None:
        self.outlooks.append(outlook)

    def began(self, cell: Cell) -> None:
        self.began_with.append(cell)

    def stage(self, cell: Cell, text: str) -> None:
        self.stages.append(text)

    def waiting(self, device: str, holder: str) -> None:
        self.waits.append((device, holder))

    def lost(self, cell: Cell, reason: str) -> None:
        self.again.append(reason)

    def ended(self, record: CellRecord, outlook: Outlook) -> None:
        self.records.append(record)
        self.outlooks.append(outlook)


def run(
    asked: Study,
    folder: Path,
    observer: StudyObserver | None = None,
    at: list[Place] | None = None,
    skip: bool = True,
    budget: float | None = None,
    refine: bool = False,
) -> None:
    """`golow.run_study` without a look at the machine, which is most of the time of a small one."""
    at, observer = at or places("cpu"), observer or SilentStudy()
    place = StudyFolder(folder / asked.name)
    with place.held():
        place.write_study(asked)
        executor = LocalExecutor(
            at,
            asked.name,
            folder / "cache",
            place.draft,
            asked.limits.cell_seconds,
            observer,
            PROGRAM,
        )
        with executor:
            order = cells(asked, 1)
            StudyRun(asked, order, place, executor, observer, skip, refine).run(budget)


def records(folder: Path, name: str = "tiny") -> dict[str, CellRecord]:
    """All records of a study that was measured in one environment."""
    place = StudyFolder(folder / name)
    [environment] = place.environments()
    return place.records(environment)


def timeless(found: Mapping[str, CellRecord]) -> dict[str, CellRecord]:
    """What is the same however often a study was interrupted."""
    return {
        key: msgspec.structs.replace(record, created="", seconds=0.0)
        for key, record in found.items()
    }
