"""A training run as flat rows for spreadsheets and data frames: one per run, or one per epoch of a
run.

docs/use/figures.md lists the columns. A missing value is None: an empty cell in CSV, null in JSON.
Losses that are not finite stay so in rows and CSV; in JSON, which has no such numbers, they are
null.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from statistics import mean
from typing import Any

import msgspec

from golow.programs.training.training_record import (
    CurveVerdict,
    Epoch,
    Training,
    TrainingPlan,
    TrainingRun,
)
from golow.records.comparison import Quantity
from golow.report.training.series import best_epoch, mean_loss, sample_seconds
from golow.storage.files import write_whole, writing
from golow.storage.spreadsheet import to_csv

Row = dict[str, Any]


def epoch_rows(training: Training) -> list[Row]:
    """One row per epoch of a run, with a column for each memory and device reading that any epoch
    has."""
    rows = []
    for run in training.runs:
        elapsed = 0.0
        for epoch in run.epochs:
            elapsed += epoch.train_seconds
            row = _of_plan(training.plan, run) | _of_epoch(epoch, elapsed)
            row |= {item.name: item.value for item in (*epoch.memory, *epoch.device)}
            rows.append(row)
    return _alike(rows)


def run_rows(training: Training) -> list[Row]:
    """One row per run, with a column for each life-cycle value, memory reading (the highest of any
    epoch) and device reading (energy summed over the epochs, others averaged) that any run has."""
    rows = []
    for run in training.runs:
        row = _of_plan(training.plan, run) | _of_run(training, run)
        row |= {item.name: item.value for item in run.life}
        row |= _over_epochs(run, lambda epoch: epoch.memory, max)
        row |= _over_epochs(run, lambda epoch: epoch.device, mean)
        row |= _over_epochs(run, _energy, sum)
        rows.append(row)
    return _alike(rows)


def write_export(training: Training, folder: Path) -> list[Path]:
    """Write ``runs`` and ``epochs`` as CSV and JSON into the folder; returns the files.

    Raises `GolowError` when the folder cannot be written.
    """
    files = {}
    for name, rows in (("runs", run_rows(training)), ("epochs", epoch_rows(training))):
        files[folder / f"{name}.csv"] = to_csv(rows).encode()
        files[folder / f"{name}.json"] = msgspec.json.format(msgspec.json.encode(rows)) + b"\n"
    with writing(folder, "free some space or name another folder."):
        folder.mkdir(parents=True, exist_ok=True)
        for file, data in files.items():
            write_whole(file, data)
    return list(files)


# ---------------------------------------------------------------- how it is done


def _of_plan(plan: TrainingPlan, run: TrainingRun) -> Row:
    return {
        "id": plan.id,
        "model": plan.model,
        "dataset": plan.dataset.name,
        "level": run.level,
        "initialisation": run.initialisation,
        "seed": run.seed,
        "batch": plan.batch,
        "precision": plan.precision,
        "device": plan.device,
        "threads": plan.threads,
    }


def _of_epoch(epoch: Epoch, elapsed: float) -> Row:
    return {
        "epoch": epoch.epoch,
        "steps": len(epoch.losses),
        "learning_rate": epoch.learning_rate,
        "train_loss": mean_loss(epoch),
        "train_seconds": epoch.train_seconds,
        "train_samples": epoch.train_samples,
        "elapsed_train_seconds": elapsed,
        "eval_loss": epoch.eval_loss,
        "eval_accuracy": epoch.eval_accuracy,
        "eval_seconds": epoch.eval_seconds,
        "eval_samples": epoch.eval_samples,
        "checksum": epoch.checksum,
    }


def _of_run(training: Training, run: TrainingRun) -> Row:
    best, last = best_epoch(run), run.epochs[-1] if run.epochs else None
    return {
        "parameters": run.workload.parameters,
        "check": run.check.verdict,
        "curves": _word(training.verdicts, run),
        "epochs": len(run.epochs),
        "final_train_loss": mean_loss(last) if last else None,
        "final_eval_loss": last.eval_loss if last else None,
        "final_eval_accuracy": last.eval_accuracy if last else None,
        "best_eval_accuracy": best.eval_accuracy if best else None,
        "best_epoch": best.epoch if best else None,
        "train_seconds": sum(epoch.train_seconds for epoch in run.epochs),
        "train_sample_seconds": sample_seconds(run, "train"),
        "eval_sample_seconds": sample_seconds(run, "eval"),
        "failure": run.failure,
    }


def _word(verdicts: Iterable[CurveVerdict], run: TrainingRun) -> str | None:
    for verdict in verdicts:
        if (verdict.level, verdict.initialisation) == (run.level, run.initialisation):
            return verdict.word
    return None


def _energy(epoch: Epoch) -> list[Quantity]:
    return [item for item in epoch.device if item.name == "energy"]


def _over_epochs(
    run: TrainingRun,
    figures: Callable[[Epoch], Iterable[Quantity]],
    reduced: Callable[[list[float]], float],
) -> Row:
    """Every reading by name, reduced over the epochs that have it."""
    values: dict[str, list[float]] = {}
    for epoch in run.epochs:
        for item in figures(epoch):
            values.setdefault(item.name, []).append(item.value)
    return {name: reduced(found) for name, found in values.items()}


def _alike(rows: list[Row]) -> list[Row]:
    """The rows with equal columns; columns that only some rows have come last."""
    columns = dict.fromkeys(name for row in rows for name in row)
    return [{name: row.get(name) for name in columns} for row in rows]
