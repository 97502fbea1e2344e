"""A study as tables of throughput: images, tokens or samples per second, a row for each level and a
column for each model; and as tables of scaling, with a column for each number of ranks."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import groupby

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from golow.programs.comparison.figures import counted, throughput
from golow.records.comparison import Quantity, Run
from golow.report.study.planes import place_text
from golow.report.study.rows import (
    SIGNS,
    Measured,
    Outcome,
    StudyRow,
    has_few_rounds,
    levels_of,
    rows_of,
)
from golow.report.study.scaling import render_scaling
from golow.report.study.table import FEW, MEANINGS
from golow.report.units import rate_text

# Axes of which a table has one value. A model that lacks a resolution has its own.
FIXED = ("environment", "device", "mode", "precision", "threads", "ranks", "resolution", "batch")
WIDEST = 6  # models beside one another in 100 columns


def render_throughput(study: str, cells: Iterable[Measured], console: Console) -> None:
    """Print what each level gets through a second, with its 95% interval below."""
    cells = list(cells)
    runs = {
        (cell.record.key, run.level): run
        for cell in cells
        for run in (cell.comparison.runs if cell.comparison else ())
    }
    rows = sorted(rows_of(study, cells), key=_fixed)
    for _, same in groupby(rows, key=_fixed):
        _render(list(same), runs, console)
    render_scaling(rows, console)
    met = {row.outcome for row in rows if row.time is None}
    if any(map(has_few_rounds, rows)):
        console.print(Text(f"{FEW}: too few rounds for a conclusion"))
    for outcome, sign in SIGNS.items():
        if outcome in met:
            console.print(Text(f"{sign}: {_meaning(outcome)}", style="dim"))


def _render(rows: Sequence[StudyRow], runs: dict[tuple[str, str], Run], console: Console) -> None:
    first = rows[0]
    axes = ("mode", "batch", "resolution", "threads", "ranks", "precision")
    one = ["ranks"] if first.ranks == 1 else []
    named = (axis for axis in axes if axis not in one)
    what = ", ".join(place_text(axis, getattr(first, axis)) for axis in named)
    for models in _chunks(list(dict.fromkeys(row.model for row in rows))):
        console.print(Text(f"{what}, on {first.device}: throughput", style="bold"))
        console.print(_table(models, rows, runs))


def _chunks(models: list[str]) -> Iterable[Sequence[str]]:
    return (models[start : start + WIDEST] for start in range(0, len(models), WIDEST))


def _table(
    models: Sequence[str], rows: Sequence[StudyRow], runs: dict[tuple[str, str], Run]
) -> Table:
    found = {(row.model, row.level): row for row in rows}
    units = {
        row.model: f"{counted(runs[row.cell, row.level].workload)[0]}/s"
        for row in rows
        if (row.cell, row.level) in runs
    }
    result = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0), header_style="bold")
    result.add_column("level", no_wrap=True)
    for model in models:
        name = model.rpartition("/")[2]
        result.add_column(f"{name}\n{units.get(model, '')}", justify="right", no_wrap=True)
    for level in levels_of(rows):
        cells = (_text(found.get((model, level)), runs) for model in models)
        result.add_row(level, *cells)
    return result


def _text(row: StudyRow | None, runs: dict[tuple[str, str], Run]) -> Text:
    """The rate and its interval, or a sign of why there is none."""
    if row is None:
        return Text("")
    if has_few_rounds(row):
        return Text(FEW)
    rate = throughput(runs[row.cell, row.level]) if row.time is not None else None
    if rate is None:
        return Text(SIGNS[row.outcome], style="dim" if row.outcome == "skipped" else "red")
    return Text(f"{rate_text(rate.value)}\n{_interval(rate)}")


def _interval(rate: Quantity) -> str:
    if rate.low is None or rate.high is None:
        return ""
    return f"{rate_text(rate.low)}-{rate_text(rate.high)}"


def _meaning(outcome: Outcome) -> str:
    return "no time" if outcome == "measured" else MEANINGS[outcome]


def _fixed(row: StudyRow) -> tuple[tuple[bool, object], ...]:
    """The table of a row, in an order in which None, a model's own value, comes first."""
    values = (getattr(row, name) for name in FIXED)
    return tuple((value is not None, value if value is not None else 0) for value in values)
