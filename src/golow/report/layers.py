"""The time of each level, layer by layer, as tables that fit the console."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from statistics import median
from typing import NamedTuple, Protocol

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from golow.records.comparison import LayerTime
from golow.records.workload import LayerPhase
from golow.report.console import WIDTH
from golow.report.units import milliseconds_text

MOST_LAYERS = 50  # rows of a phase that stay readable
LABEL_WIDTH, FUSED_WIDTH = 32, 16
STEP = "step without profiler"
CLOCK = (
    "Here the clock is read at every step, and eager also runs hooks, so totals differ from the "
    "times of the race. Work that a module does outside its children is listed under its own name."
)
KERNELS = (
    "With a number of kernels, a time is that of the layer's own kernels and copies, without the "
    "gaps between them. Kernels of no known layer are in the row (top)."
)
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
    """One level: seconds by row, in its order; the rows that run inside a step of another row, and
    which that is; the operation of each row that is a separate step; and the kernels of each row,
    empty if they were not counted."""

    level: str
    iterations: int
    seconds: dict[Row, float]
    fused: dict[Row, Row]
    operations: dict[Row, str]
    kernels: dict[Row, float]

    @property
    def total(self) -> float:
        """Seconds of all rows."""
        return sum(self.seconds.values())


def has_layers(runs: Sequence[Divided]) -> bool:
    """True if times by layer were requested."""
    return any(run.layers or run.layers_missing for run in runs)


def render_layers(
    runs: Sequence[Divided], console: Console, steps: Mapping[str, float] | None = None
) -> None:
    """Print as many tables as the levels need, and why a level has no times by layer.

    steps: of a profile, the seconds of a step without a profiler, by level.
    """
    console.print()
    if not has_layers(runs):
        console.print("This record has no times by layer; a comparison by layer has them.")
        return
    columns = layer_columns(runs)
    if columns:
        rows = layer_rows(columns)
        console.print(Text("By layer", style="bold"))
        console.print(Text(_units(columns), style="dim"))
        for part in _that_fit(columns, rows, min(WIDTH, console.width), bool(steps)):
            console.print(_table(part, rows, columns[0].operations, steps))
        console.print(Text(_remark(columns, steps), style="dim"))
    for run in runs:
        if run.layers_missing and not run.layers:
            console.print(Text(f"{run.level} has no times by layer: {run.layers_missing}"))


def layer_columns(runs: Sequence[Divided]) -> list[Column]:
    """The runs that have times by layer, all grouped to the same depth of paths, that of a readable
    table."""
    return columns_at(runs, readable_depth(runs))


def columns_at(runs: Sequence[Divided], depth: int) -> list[Column]:
    """Regroup the times to paths of that many components; 0 leaves a row per phase."""
    return [_column(run, depth) for run in runs if run.layers]


def deepest(runs: Sequence[Divided]) -> int:
    """Components of the longest path."""
    return max((path.count(".") + 1 for path in _paths(runs)), default=1)


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


def readable_depth(runs: Sequence[Divided]) -> int:
    """Components of a path to keep: as many as leave a readable table."""
    paths = _paths(runs)
    for depth in range(deepest(runs), 1, -1):
        if len({group(path, depth) for path in paths}) <= MOST_LAYERS:
            return depth
    return 1


def _paths(runs: Sequence[Divided]) -> list[str]:
    return [step.modules[0] for run in runs for step in run.layers]


def group(path: str, depth: int) -> str:
    """The first components of a path."""
    return ".".join(path.split(".")[:depth])


def _column(run: Divided, depth: int) -> Column:
    steps: dict[Row, list[LayerTime]] = {}
    operations: dict[Row, str] = {}
    covered: dict[Row, Row] = {}
    kernels: dict[Row, float] = {}
    for step in run.layers:
        first, *others = (Row(group(path, depth), step.phase) for path in step.modules)
        steps.setdefault(first, []).append(step)
        for other in others:
            covered.setdefault(other, first)
        if step.kernels is not None:
            kernels[first] = kernels.get(first, 0.0) + step.kernels
        if first.module == step.modules[0]:
            operations[first] = step.operation
    return Column(
        level=run.level,
        iterations=len(run.layers[0].ns),
        seconds={row: _seconds(found) for row, found in steps.items()},
        fused={row: into for row, into in covered.items() if row not in steps},
        operations=operations,
        kernels=kernels,
    )


def _seconds(steps: Sequence[LayerTime]) -> float:
    """Median over the iterations of the steps' total."""
    return median(map(sum, zip(*(step.ns for step in steps), strict=True))) / 1e9


# ---------------------------------------------------------------- text


def _units(columns: Sequence[Column]) -> str:
    counts = sorted({column.iterations for column in columns})
    number = " to ".join(map(str, {counts[0], counts[-1]}))
    text = f"median of {number} iterations in ms, and its share of the level's total"
    if any(column.kernels for column in columns):
        text += ", and the number of its kernels"
    return text


def _that_fit(
    columns: Sequence[Column], rows: Sequence[Row], width: int, steps: bool
) -> Iterator[Sequence[Column]]:
    """The columns in as few parts as possible, each no wider than that. steps: a row for them."""
    labels = max(len(STEP) * steps, *(len(_label(row)) for row in rows))
    names = max((len(name) for name in columns[0].operations.values()), default=0)
    left = width - labels - names - 2
    part: list[Column] = []
    for column in columns:
        if part and sum(_width(c, rows) + 1 for c in (*part, column)) > left:
            yield part
            part = []
        part.append(column)
    yield part


def _width(column: Column, rows: Sequence[Row]) -> int:
    texts = (*_title(column.level), " " * CELL_WIDTH, *(_cell(column, row) for row in rows))
    return max(map(len, texts))


def _table(
    columns: Sequence[Column],
    rows: Sequence[Row],
    operations: dict[Row, str],
    steps: Mapping[str, float] | None,
) -> Table:
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
    result.add_row("total", "", *(_total(column) for column in columns))
    if steps:
        result.add_row(STEP, "", *(_step(column, steps) for column in columns))
    return result


def _total(column: Column) -> str:
    kernels = _kernels(column, sum(column.kernels.values()))
    return f"{milliseconds_text(column.total)} {'100%':>6}{kernels}"


def _step(column: Column, steps: Mapping[str, float]) -> str:
    """The step's time, and the layers' total as a share of it."""
    seconds = steps.get(column.level)
    if not seconds:
        return "-"
    return f"{milliseconds_text(seconds)} {column.total / seconds:6.1%}{_kernels(column, None)}"


def _kernels(column: Column, kernels: float | None) -> str:
    """The last part of a cell: nothing in a column without kernels."""
    if not column.kernels:
        return ""
    return f" {'-':>4}" if kernels is None else f" {kernels:>4.4g}"


def _title(level: str) -> list[str]:
    return level.replace(":", "\n:").split("\n")


def _label(row: Row) -> str:
    """The path, or the end of a long one."""
    return _ending(row.module or ("(all)" if row.phase == "update" else "(top)"), LABEL_WIDTH)


def _ending(path: str, width: int) -> str:
    return path if len(path) <= width else f"..{path[2 - width :]}"


def _cell(column: Column, row: Row) -> str:
    seconds = column.seconds.get(row)
    if seconds is None:
        into = column.fused.get(row)
        return "-" if into is None else f"fused: {_beside(row, into)}"
    share = seconds / column.total if column.total else 0.0
    kernels = _kernels(column, column.kernels.get(row))
    return f"{milliseconds_text(seconds)} {share:6.1%}{kernels}"


def _beside(row: Row, into: Row) -> str:
    """The path of the other layer; its last part if both are in the same module."""
    parent, _, name = into.module.rpartition(".")
    path = name if row.module.rpartition(".")[0] == parent else into.module
    return _ending(path or "(top)", FUSED_WIDTH)


def _remark(columns: Sequence[Column], steps: Mapping[str, float] | None) -> str:
    parts = []
    if not all(column.kernels for column in columns):
        parts.append(CLOCK)
    if any(column.kernels for column in columns):
        parts.append(KERNELS)
    if steps:
        parts.append(f"{STEP}: its time, and the total as a share of it.")
    if any(column.fused for column in columns):
        parts.append("fused: runs as one step with the layer named here, whose row has the time.")
    return "\n".join(parts)
