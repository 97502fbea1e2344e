"""The time of each level, layer by layer, as tables that fit the console."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from statistics import median
from typing import NamedTuple, Protocol

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from golow.record import LayerPhase, LayerTime
from golow.report.console import WIDTH
from golow.report.units import milliseconds_text

MOST_LAYERS = 50  # rows of a phase that stay readable
LABEL_WIDTH = 32
PHASES: tuple[LayerPhase, ...] = ("forward", "backward", "update")
CELL_WIDTH = 13


class Divided(Protocol):
    """A level that may have times by layer: a run of a comparison, or of a profile."""

    @property
    def level(self) -> str:
        """Its name."""

    @property
    def layers(self) -> tuple[LayerTime, ...]:
        """Its steps; empty if they were not timed."""

    @property
    def layers_missing(self) -> str:
        """Why they were not, if that was wanted."""


class Row(NamedTuple):
    """A layer, or all layers under one path, in one phase."""

    module: str
    phase: LayerPhase


class Column(NamedTuple):
    """One level: seconds by row, in its order; the rows that run inside a step of another row;
    and the operation of each row that is a step of its own."""

    level: str
    iterations: int
    seconds: dict[Row, float]
    fused: set[Row]
    operations: dict[Row, str]

    @property
    def total(self) -> float:
        """Seconds of all rows."""
        return sum(self.seconds.values())


def has_layers(runs: Sequence[Divided]) -> bool:
    """Whether times by layer were requested."""
    return any(run.layers or run.layers_missing for run in runs)


def render_layers(runs: Sequence[Divided], console: Console) -> None:
    """Print as many tables as the levels need, and why a level has no times by layer."""
    console.print()
    if not has_layers(runs):
        console.print("This record has no times by layer: run `golow compare --by-layer`.")
        return
    columns = layer_columns(runs)
    if columns:
        rows = layer_rows(columns)
        counts = sorted({column.iterations for column in columns})
        console.print(Text("By layer", style="bold"))
        console.print(
            Text(
                f"median of {' to '.join(map(str, {counts[0], counts[-1]}))} iterations in ms, and "
                "its share of the level's total",
                style="dim",
            )
        )
        for part in _that_fit(columns, rows, min(WIDTH, console.width)):
            console.print(_table(part, rows, columns[0].operations))
        console.print(Text(_remark(columns), style="dim"))
    for run in runs:
        if run.layers_missing:
            console.print(Text(f"{run.level} has no times by layer: {run.layers_missing}"))


def layer_columns(runs: Sequence[Divided]) -> list[Column]:
    """The runs that have times by layer, all grouped to the same depth of paths."""
    measured = [run for run in runs if run.layers]
    depth = _depth([step.modules[0] for run in measured for step in run.layers])
    return [_column(run, depth) for run in measured]


def layer_rows(columns: Sequence[Column]) -> list[Row]:
    """All rows in order of execution: the first level's, and each row that only other levels have
    after the row that it follows there."""
    merged: list[Row] = []
    for column in columns:
        place = 0
        for row in column.seconds:
            if row not in merged:
                merged.insert(place, row)
            place = merged.index(row) + 1
    return sorted(merged, key=lambda row: PHASES.index(row.phase))


def _depth(paths: Sequence[str]) -> int:
    """Components of a path to keep: as many as leave a readable table."""
    deepest = max((path.count(".") + 1 for path in paths), default=1)
    for depth in range(deepest, 1, -1):
        if len({_group(path, depth) for path in paths}) <= MOST_LAYERS:
            return depth
    return 1


def _group(path: str, depth: int) -> str:
    return ".".join(path.split(".")[:depth])


def _column(run: Divided, depth: int) -> Column:
    steps: dict[Row, list[LayerTime]] = {}
    operations: dict[Row, str] = {}
    covered: set[Row] = set()
    for step in run.layers:
        first, *others = (Row(_group(path, depth), step.phase) for path in step.modules)
        steps.setdefault(first, []).append(step)
        covered.update(others)
        if first.module == step.modules[0]:
            operations[first] = step.operation
    return Column(
        level=run.level,
        iterations=len(run.layers[0].ns),
        seconds={row: _seconds(found) for row, found in steps.items()},
        fused=covered - steps.keys(),
        operations=operations,
    )


def _seconds(steps: Sequence[LayerTime]) -> float:
    """Median over the iterations of the steps' total."""
    return median(map(sum, zip(*(step.ns for step in steps), strict=True))) / 1e9


# ---------------------------------------------------------------- text


def _that_fit(
    columns: Sequence[Column], rows: Sequence[Row], width: int
) -> Iterator[Sequence[Column]]:
    """The columns in as few parts as possible, each no wider than that."""
    labels = max(len(_label(row)) for row in rows)
    names = max((len(name) for name in columns[0].operations.values()), default=0)
    left = width - labels - names - 2
    part: list[Column] = []
    for column in columns:
        needed = [max(map(len, (*_title(c.level), " " * CELL_WIDTH))) + 1 for c in (*part, column)]
        if part and sum(needed) > left:
            yield part
            part = []
        part.append(column)
    yield part


def _table(columns: Sequence[Column], rows: Sequence[Row], operations: dict[Row, str]) -> Table:
    result = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0), header_style="bold")
    result.add_column("layer", no_wrap=True)
    result.add_column("", no_wrap=True, style="dim")
    for column in columns:
        result.add_column("\n".join(_title(column.level)), justify="right", no_wrap=True)
    phases = [phase for phase in PHASES if any(row.phase == phase for row in rows)]
    for phase in phases:
        if len(phases) > 1:
            result.add_row(Text(phase, style="bold"))
        for row in rows:
            if row.phase == phase:
                cells = (_cell(column, row) for column in columns)
                result.add_row(_label(row), operations.get(row, ""), *cells)
        result.add_section()
    totals = (f"{milliseconds_text(column.total)} {'100%':>6}" for column in columns)
    result.add_row("total", "", *totals)
    return result


def _title(level: str) -> list[str]:
    return level.replace(":", "\n:").split("\n")


def _label(row: Row) -> str:
    """The path, or the end of a long one."""
    path = row.module or ("(all)" if row.phase == "update" else "(top)")
    return path if len(path) <= LABEL_WIDTH else f"..{path[2 - LABEL_WIDTH :]}"


def _cell(column: Column, row: Row) -> str:
    seconds = column.seconds.get(row)
    if seconds is None:
        return "fused" if row in column.fused else "-"
    share = seconds / column.total if column.total else 0.0
    return f"{milliseconds_text(seconds)} {share:6.1%}"


def _remark(columns: Sequence[Column]) -> str:
    text = (
        "Here the clock is read at every step, and eager also runs hooks, so totals differ from "
        "the times\nof the race. Work that a module does outside its children is listed under its "
        "own name."
    )
    if any(column.fused for column in columns):
        text += "\nfused: runs as one step with an earlier layer, whose row has the time."
    return text
