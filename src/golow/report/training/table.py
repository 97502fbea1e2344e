"""A training run as a table of 100 columns at most, and the verdicts below it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from statistics import mean, median
from typing import NamedTuple

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from golow.measure.block import CONTENDED_SHARE
from golow.programs.training.training_record import CurveVerdict, Epoch, Training, TrainingRun
from golow.report.console import level_text, wide_console
from golow.report.training import series
from golow.report.training.caption import conditions, machine
from golow.report.units import bytes_text, joules_text, share_text

STYLES = {
    "same": "green",
    "differs": "bold red",
    "unclear": "yellow",
    "failed": "red",
    "unavailable": "dim",
}


class Row(NamedTuple):
    """A level from one initialisation, with a run for each seed that was started."""

    level: str
    initialisation: str
    runs: list[TrainingRun]
    eager: list[TrainingRun]
    verdict: CurveVerdict | None

    @property
    def trained(self) -> list[TrainingRun]:
        """The runs that have an epoch."""
        return [run for run in self.runs if run.epochs]


def render(training: Training, console: Console | None = None) -> None:
    """Print heading, conditions, table, each level's verdict with its reason, and notes."""
    console = console or wide_console()
    plan, rows = training.plan, list(rows_of(training))
    console.print(Text(heading(training), style="bold"))
    console.print(Text(f"{conditions(plan)}\n{machine(plan)}", style="dim"))
    if rows:
        console.print(table(training, rows))
    else:
        console.print(Text("no level has begun to train; golow train --resume FOLDER continues"))
    for row in rows:
        for said in _said(row, training):
            console.print(said)
    for footnote in _footnotes(rows):
        console.print(Text(footnote, style="dim"))
    remarks = dict.fromkeys(f"{r.level}: {note}" for r in training.runs for note in r.notes)
    for remark in (*training.notes, *remarks):
        console.print(Text(f"note: {remark}", style="dim"))


def heading(training: Training) -> str:
    """Model, data set and progress."""
    plan = training.plan
    finished = sum(len(run.epochs) == plan.epochs for run in training.runs)
    runs = len(plan.levels) * len(plan.initialisations) * len(plan.seeds)
    done = "" if finished == runs else f", {finished} of {runs} runs finished"
    epochs = f"{plan.epochs} epoch{'s' if plan.epochs != 1 else ''}"
    return f"{plan.model} on {plan.dataset.name}, {epochs}{done}"


def rows_of(training: Training) -> Iterator[Row]:
    """Rows in the plan's order, for levels that were started."""
    verdicts = {(found.level, found.initialisation): found for found in training.verdicts}
    plan = training.plan
    for initialisation in plan.initialisations:
        eager = series.runs_of(training, plan.levels[0], initialisation)
        for level in plan.levels:
            runs = series.runs_of(training, level, initialisation)
            if runs:
                found = verdicts.get((level, initialisation))
                yield Row(level, initialisation, runs, eager, found)


def table(training: Training, rows: Sequence[Row]) -> Table:
    """One row per level and initialisation; mean over the seeds, lowest and highest below it."""
    plan = training.plan
    apart = (0, 0 if plan.device == "cuda" else 1, 0, 0)  # beyond the box's own column
    result = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=apart, header_style="bold")
    for name in ("level", "same\nnetwork"):
        result.add_column(name, no_wrap=True)
    columns = {**COLUMNS, **(ON_GPU if plan.device == "cuda" else ON_CPU)}
    for name in columns:
        result.add_column(name, justify="right", no_wrap=True)
    for row in rows:
        start = f"\n {row.initialisation}" if len(plan.initialisations) > 1 else ""
        cells = (cell(row) for cell in columns.values())
        result.add_row(level_text(row.level) + start, _verdict_text(row, training), *cells)
    return result


# ---------------------------------------------------------------- cells


def _verdict_text(row: Row, training: Training) -> Text:
    word = _word(row, training)
    if word == "unavailable":  # the reason is below the table
        return Text("-")
    seeds = len(training.plan.seeds)
    trained = sum(len(run.epochs) == training.plan.epochs for run in row.runs)
    count = "" if seeds == 1 else f"\n{trained}/{seeds} seeds"
    return Text(word, style=STYLES.get(word, "")).append(count, style="not bold default")


def _word(row: Row, training: Training) -> str:
    """The curves' verdict, or the check's if it kept the level from training; eager is the
    baseline."""
    check = row.runs[0].check.verdict
    if not row.trained and check != "match":
        return check
    if row.level == training.plan.levels[0]:
        return "baseline"
    return row.verdict.word if row.verdict else "unclear"


def _accuracy(of: Callable[[TrainingRun], Epoch | None]) -> Callable[[Row], str]:
    def cell(row: Row) -> str:
        epochs = [of(run) for run in row.trained]
        found = [e.eval_accuracy for e in epochs if e is not None and e.eval_accuracy is not None]
        return _spread([f"{100 * share:.2f}" for share in _summary(found)], "%")

    return cell


def _sample(phase: str) -> Callable[[Row], str]:
    """Time per sample; marked if the worker had to wait for a core."""

    def cell(row: Row) -> str:
        found = _summary(_sample_seconds(row.runs, phase))
        if not found:
            return "-"
        factor, unit = next(
            (pair for pair in ((1.0, "s"), (1e-3, "ms")) if found[0] >= pair[0]), (1e-6, "us")
        )
        mark = "*" if phase == "train" and _waited(row) > CONTENDED_SHARE else ""
        return _spread([f"{seconds / factor:.3g}" for seconds in found], f" {unit}{mark}")

    return cell


def _over_eager(row: Row) -> str:
    level, eager = (_sample_seconds(runs, "train") for runs in (row.runs, row.eager))
    if not level or not eager or not mean(eager):
        return "-"
    return f"{mean(level) / mean(eager):.2f}"


def _memory(*names: str) -> Callable[[Row], str]:
    """The highest of any epoch, mean over the seeds; the first of the names that was recorded."""

    def cell(row: Row) -> str:
        for name in names:
            found = _figures(row, "memory", name, max)
            if found:
                return bytes_text(mean(found)) + ("+" if name == "device_added" else "")
        return "-"

    return cell


def _use(row: Row) -> str:
    """Share of the time in which a kernel ran, and the GPU's energy per epoch."""
    shares, joules = (_figures(row, "device", name, mean) for name in ("utilization", "energy"))
    if not shares and not joules:
        return "-"
    share, energy = (mean(found) if found else None for found in (shares, joules))
    return f"{share_text(share)}\n{joules_text(energy)}"


COLUMNS: Mapping[str, Callable[[Row], str]] = {
    "accuracy\nfinal": _accuracy(lambda run: run.epochs[-1]),
    "accuracy\nbest": _accuracy(series.best_epoch),
    "training\nper sample": _sample("train"),
    "over\neager": _over_eager,
    "testing\nper sample": _sample("eval"),
}
ON_CPU: Mapping[str, Callable[[Row], str]] = {"memory\nresident": _memory("resident")}
ON_GPU: Mapping[str, Callable[[Row], str]] = {
    "memory\nof GPU": _memory("device_used", "device_added"),
    "GPU use\nenergy": _use,
}


# ---------------------------------------------------------------- sentences


def _said(row: Row, training: Training) -> list[Text]:
    """The results of the level's runs, one paragraph each."""
    start = f" ({row.initialisation})" if len(training.plan.initialisations) > 1 else ""
    said: list[tuple[str, str]] = []
    word, check = _word(row, training), row.runs[0].check
    if not row.trained and check.verdict != "match":
        said.append((word, check.reason))
    elif row.verdict is not None:
        said.append((word, row.verdict.reason))
    said += [
        ("failed", f"seed {run.seed}, after {len(run.epochs)} epochs: {run.failure}")
        for run in row.runs
        if run.failure
    ]
    return [
        Text(f"{row.level}{start}: {word}", style=STYLES.get(word, "")).append(
            f": {reason}", style="not bold default"
        )
        for word, reason in said
    ]


def _footnotes(rows: Sequence[Row]) -> Iterator[str]:
    """The meaning of the marks that the table contains."""
    most = max(map(_waited, rows), default=0.0)
    if most > CONTENDED_SHARE:
        yield (
            f"*: threads of the process waited for a core, up to {share_text(most)} of the time, "
            "summed over threads; the time reflects the machine's load, not only the level"
        )
    if any(_figures(row, "memory", "device_added", max) for row in rows):
        yield "+: increase of the GPU memory in use since the level started"


# ---------------------------------------------------------------- numbers


def _summary(found: Sequence[float]) -> list[float]:
    """Mean, lowest and highest; or the only number; or nothing."""
    return [mean(found), min(found), max(found)] if len(found) > 1 else list(found)


def _spread(texts: Sequence[str], unit: str) -> str:
    if not texts:
        return "-"
    return f"{texts[0]}{unit}" + (f"\n{texts[1]}-{texts[2]}" if len(texts) > 1 else "")


def _sample_seconds(runs: Sequence[TrainingRun], phase: str) -> list[float]:
    found = (series.sample_seconds(run, phase) for run in runs)
    return [seconds for seconds in found if seconds is not None]


def _figures(
    row: Row, kind: str, name: str, over_epochs: Callable[[list[float]], float]
) -> list[float]:
    """One number per run, over the epochs that have the reading."""
    found = []
    for run in row.runs:
        values = [
            quantity.value
            for epoch in run.epochs
            for quantity in (epoch.memory if kind == "memory" else epoch.device)
            if quantity.name == name
        ]
        found += [over_epochs(values)] if values else []
    return found


def _waited(row: Row) -> float:
    """Share of the time in which the training worker waited for a core: the median over the epochs
    of a run, and the largest of all runs."""
    shares = ([e.wait_share for e in run.epochs if e.wait_share is not None] for run in row.trained)
    return max((median(found) for found in shares if found), default=0.0)
