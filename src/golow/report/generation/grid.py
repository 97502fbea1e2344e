"""A study of text generation: a row for each cell and level, as a table or as flat rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from rich import box
from rich.table import Table
from rich.text import Text

from golow.programs.generation.generation_record import Generation, TextCase, TextRun
from golow.programs.study.study_record import Cell
from golow.report.comparison.columns import STYLES
from golow.report.console import level_text, visible
from golow.report.generation.export import rows as exported
from golow.report.generation.facts import roof_share, tokens_per_second
from golow.report.units import MISSING, milliseconds_text, rate_text, ratio_text, share_text

Measured = tuple[Cell, Generation]

AXES: dict[str, Callable[[Cell, TextCase], object]] = {
    "model": lambda cell, case: case.workload.model,
    "precision": lambda cell, case: cell.precision,
    "threads": lambda cell, case: case.workload.threads,
    "batch": lambda cell, case: cell.batch,
    "prompt": lambda cell, case: case.workload.prompt,
    "tokens": lambda cell, case: case.workload.tokens,
}
ALWAYS = ("batch", "prompt", "tokens")
MEASURES = ("check", "first\nms", "token\nms", "tok/s", "roof", "ratio")


def grid_table(cells: Sequence[Measured]) -> Table:
    """Return times and tokens per second of every level, with the axes on which cells differ."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0), header_style="bold")
    table.add_column("level", overflow="fold")
    places = [
        {name: str(of(cell, found.cases[0])) for name, of in AXES.items()} for cell, found in cells
    ]
    shown = [n for n in AXES if n in ALWAYS or len({place[n] for place in places}) > 1]
    for name in (*shown, *MEASURES):
        table.add_column(name, justify="right", no_wrap=True)
    for place, (_, found) in zip(places, cells, strict=True):
        (case,) = found.cases
        for run in case.runs:
            axes = (visible(place[name]) for name in shown)
            table.add_row(Text(level_text(visible(run.level))), *axes, *_cells(found, case, run))
        table.add_section()
    return table


def grid_rows(cells: Sequence[Measured]) -> list[dict[str, Any]]:
    """Return the rows of `golow generate` with the threads of their cells."""
    return [
        {**row, "threads": found.cases[0].workload.threads}
        for _, found in cells
        for row in exported(found)
    ]


def _cells(found: Generation, case: TextCase, run: TextRun) -> Iterator[str | Text]:
    rate = tokens_per_second(case, run)
    yield Text(run.verdict, style=STYLES.get(run.verdict, ""))
    for quantity in (run.first_token, run.token):
        yield MISSING if quantity is None else milliseconds_text(quantity.value)
    yield MISSING if rate is None else rate_text(rate)
    yield share_text(roof_share(found, case, run))
    yield MISSING if run.ratio is None else ratio_text(run.ratio.value)
