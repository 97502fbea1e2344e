"""A study as flat rows: one per cell and level, with the same columns for every study.

Figures and exports use only these rows. docs/use/studies_export.md lists every column with its
unit; a number that is missing or not finite is None.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from statistics import median
from typing import Literal, NamedTuple

import msgspec

from golow.measure.words import LEAST_ROUNDS
from golow.programs.study.store import StudyFolder
from golow.programs.study.study_record import (
    OUT_OF_MEMORY,
    Cell,
    CellRecord,
    CellState,
    Study,
    asks,
    ran_out_of_memory,
)
from golow.records.comparison import Comparison, Environment, Run, VerdictName
from golow.records.record import Record
from golow.records.workload import Device, Mode, Precision

Outcome = Literal[
    "measured", "differs", "out of memory", "failed", "unavailable", "skipped", "not reached"
]

# Shown instead of a number for each outcome, in tables and figures alike.
SIGNS: dict[Outcome, str] = {
    "out of memory": "oom",
    "skipped": "skip",
    "failed": "fail",
    "differs": "diff",
    "unavailable": "n/a",
    "not reached": "-",
    "measured": "?",
}

# Beginnings of the reason of a level that was never started; the second one is of older records.
NOT_REACHED = ("the run ended before this level", "it was not reached")
CUDNN = ("nvidia-cudnn-cu13", "nvidia-cudnn-cu12")


class StudyRow(Record, frozen=True, kw_only=True):
    """One level in one cell. Axes as requested: None is the model's own resolution, and all cores.
    Times in seconds per iteration, sizes in bytes, shares between 0 and 1."""

    # the request
    study: str
    cell: str
    environment: str
    model: str
    mode: Mode
    device: Device
    precision: Precision
    threads: int | None
    ranks: int = 1
    batch: int
    resolution: int | None
    level: str
    # the outcome
    state: CellState
    verdict: VerdictName | None
    outcome: Outcome
    reason: str
    created: str
    cell_seconds: float | None
    # the race
    time: float | None = None
    time_low: float | None = None
    time_high: float | None = None
    sample_time: float | None = None
    ratio: float | None = None
    ratio_low: float | None = None
    ratio_high: float | None = None
    word: str | None = None
    rounds: int | None = None
    rounds_used: str | None = None
    stopped_because: str | None = None
    contended_share: float | None = None
    throttled_share: float | None = None
    # memory
    resident: float | None = None
    resident_peak: float | None = None
    allocated_peak: float | None = None
    device_used: float | None = None
    device_added: float | None = None
    # a GPU
    utilization: float | None = None
    enqueue: float | None = None
    energy: float | None = None
    power: float | None = None
    copied: float | None = None
    copy_time: float | None = None
    clock_mhz: float | None = None
    temperature_c: float | None = None
    other_processes: int | None = None
    # the life cycle
    capture: float | None = None
    build: float | None = None
    build_cached: bool | None = None
    load: float | None = None
    ready: float | None = None
    first_iteration: float | None = None
    warm_up: float | None = None
    artifact: float | None = None
    payback_iterations: float | None = None
    # where
    input: str | None = None
    parameters: int | None = None
    threads_used: int | None = None
    host: str = ""
    hardware: str = ""
    cpu: str | None = None
    gpu: str | None = None
    driver: str | None = None
    python: str | None = None
    torch: str | None = None
    golow: str | None = None
    cudnn: str | None = None
    onednn: str | None = None


def has_few_rounds(row: StudyRow) -> bool:
    """True if the level was timed in too few rounds for any conclusion."""
    return row.time is not None and row.rounds is not None and row.rounds < LEAST_ROUNDS


class Measured(NamedTuple):
    """A cell as stored on disk, with a comparison if it is done. environment: that of its folder,
    None if the folder does not report it."""

    record: CellRecord
    comparison: Comparison | None
    environment: Environment | None = None


QUANTITIES = (
    *("resident", "resident_peak", "allocated_peak", "device_used", "device_added"),
    *("utilization", "enqueue", "energy", "power", "copied", "copy_time"),
    *("capture", "build", "load", "ready", "first_iteration", "warm_up", "artifact"),
)
"""Columns with a run's value of the same name."""


def load(folder: Path) -> list[StudyRow]:
    """The rows of the study in that folder, in the order of its axes, for the cells that the study
    still contains. Raises `GolowError` if there is no study, or its records cannot be read."""
    place = StudyFolder(folder)
    study = place.study()
    cells = [
        Measured(record, place.comparison(record) if record.comparison else None, environment)
        for name, environment in place.environments().items()
        for record in _current(study, place.records(name).values())
    ]
    return rows_of(folder.resolve().name, cells)


def _current(study: Study, records: Iterable[CellRecord]) -> list[CellRecord]:
    """The records of one environment for the study's cells; the newest if a cell has several, which
    happens when the study's levels have changed."""
    newest: dict[Cell, CellRecord] = {}
    for record in sorted(records, key=lambda record: record.created):
        if asks(study, record.cell):
            newest[msgspec.structs.replace(record.cell, levels=(), source="")] = record
    return list(newest.values())


def rows_of(study: str, cells: Iterable[Measured]) -> list[StudyRow]:
    """One row per level of each cell, ordered by axes; eager comes first in a cell."""
    ordered = sorted(cells, key=lambda cell: _place(cell.record))
    return [row for cell in ordered for row in _of_cell(study, cell)]


def _place(record: CellRecord) -> tuple[object, ...]:
    cell = record.cell
    axes = (cell.threads or 0, cell.ranks, cell.resolution or 0, cell.batch)
    return (record.environment, cell.model, cell.mode, cell.precision, *axes, record.key)


# ---------------------------------------------------------------- a cell


def _of_cell(study: str, cell: Measured) -> Iterator[StudyRow]:
    """The measured levels, then those that were requested but not measured."""
    record, comparison, environment = cell
    runs = {run.level: run for run in comparison.runs} if comparison else {}
    for level in dict.fromkeys((*runs, *record.cell.levels)):
        run = runs.get(level)
        columns = _asked(study, record) | _became(record, level, run)
        if run is not None and comparison is not None:
            columns |= _figures(run, measured=columns["outcome"] == "measured")
            columns |= _conditions(run, comparison)
            environment = run.environment
        if environment is not None:
            columns |= _where(environment)
        yield msgspec.convert({n: _finite(value) for n, value in columns.items()}, StudyRow)


def _asked(study: str, record: CellRecord) -> dict[str, object]:
    cell = record.cell
    return {
        "study": study,
        "cell": record.key,
        "environment": record.environment,
        "model": cell.model,
        "mode": cell.mode,
        "device": cell.device,
        "precision": cell.precision,
        "threads": cell.threads,
        "ranks": cell.ranks,
        "batch": cell.batch,
        "resolution": cell.resolution,
        "created": record.created,
        "cell_seconds": record.seconds,
        "host": record.machine.host,
        "hardware": record.machine.device,
    }


def _became(record: CellRecord, level: str, run: Run | None) -> dict[str, object]:
    return {
        "level": level,
        "state": record.state,
        "verdict": run.check.verdict if run else None,
        "outcome": _outcome(record, level, run),
        "reason": run.check.reason if run else record.reason,
    }


def _outcome(record: CellRecord, level: str, run: Run | None) -> Outcome:
    if record.state == "skipped":
        return "skipped"
    if level in record.out_of_memory:
        return "out of memory"
    if run is None:
        if record.is_measured:
            return "not reached"
        return "out of memory" if record.reason.startswith(OUT_OF_MEMORY) else "failed"
    if run.check.verdict == "match":
        return "measured" if run.time is not None else "not reached"
    if ran_out_of_memory(run):
        return "out of memory"
    return "not reached" if run.check.reason.startswith(NOT_REACHED) else run.check.verdict


def _figures(run: Run, measured: bool) -> dict[str, object]:
    """Times and ratios only for levels that match; the rest as far as it was measured."""
    columns: dict[str, object] = {name: run.quantity(name) for name in QUANTITIES}
    columns |= {"build_cached": run.build_cached, "rounds": len(run.blocks)}
    if measured and run.time is not None:
        time = run.time
        columns |= {"time": time.value, "time_low": time.low, "time_high": time.high}
        columns |= {"sample_time": time.value / run.workload.batch / run.workload.ranks}
        columns |= {"payback_iterations": run.payback_iterations}
    if measured and run.ratio is not None:
        ratio = run.ratio
        columns |= {"ratio": ratio.value, "ratio_low": ratio.low, "ratio_high": ratio.high}
        columns |= {"word": ratio.word}
    return columns


def _conditions(run: Run, comparison: Comparison) -> dict[str, object]:
    states = [block.gpu for block in run.blocks if block.gpu is not None]
    return {
        "rounds_used": run.conditions.rounds_used or None,
        "stopped_because": comparison.race.stopped_because,
        "contended_share": run.conditions.contended_share,
        "throttled_share": run.conditions.throttled_share,
        "clock_mhz": median(state.clock_mhz for state in states) if states else None,
        "temperature_c": max((state.temperature_c for state in states), default=None),
        "other_processes": max((state.other_processes for state in states), default=None),
        "input": "x".join(map(str, run.workload.inputs[0].shape[1:])),
        "parameters": run.workload.parameters,
        "threads_used": run.conditions.threads,
    }


def _where(machine: Environment) -> dict[str, object]:
    versions = machine.versions
    return {
        "cpu": machine.cpu_model,
        "gpu": " or ".join(dict.fromkeys(machine.gpu)) or None,
        "driver": machine.driver or None,
        "python": machine.python,
        "torch": versions.get("torch"),
        "golow": versions.get("golow"),
        "cudnn": next((versions[name] for name in CUDNN if name in versions), None),
        "onednn": versions.get("onednn-cpu-gomp"),
    }


def _finite(value: object) -> object:
    return None if isinstance(value, float) and not math.isfinite(value) else value


def levels_of(rows: Sequence[StudyRow]) -> list[str]:
    """The levels of the rows, each once, in the cells' order of the ladder."""
    found = [row.level for row in rows]
    return sorted(dict.fromkeys(found), key=lambda level: (level != "eager", found.index(level)))
