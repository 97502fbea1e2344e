"""A generation as tables of 80 columns at most: a row per level, a table per batch size; then the
texts and what a reader must know."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from golow.programs.generation.generation_record import Generation, TextCase, TextRun
from golow.report.comparison.columns import STYLES
from golow.report.console import level_text, visible, wide_console
from golow.report.generation.facts import (
    conditions,
    proof,
    remarks,
    roof_share,
    start_text,
    title,
    tokens_per_second,
    written,
)
from golow.report.units import (
    MISSING,
    bytes_text,
    decimal_text,
    milliseconds_text,
    rate_text,
    share_text,
)

WIDTH = 80
READING = "ms: up to the first token; a later token (median, 99th percentile)"


def render(found: Generation, console: Console | None = None) -> None:
    """Print the generation."""
    console = console or wide_console(WIDTH)
    console.print(Text(title(found), style="bold"))
    console.print(Text(conditions(found), style="dim"))
    for case in found.cases:
        console.print(level_table(found, case))
    console.print(Text(READING + _roof_words(found), style="dim"))
    if any(run.replayed for case in found.cases for run in case.runs):
        console.print(Text(proof(found), style="dim"))
    for levels, text in written(found.cases[0]):
        console.print(Text(f"\n{visible(levels)}:", style="dim"))
        for line in text_lines(text):
            console.print(Text(line))
    for remark in remarks(found):
        console.print(Text(visible(remark)))
    for run in (run for case in found.cases for run in case.runs if run.log):
        console.print(Text(visible(f"the end of {run.level}'s log:\n{run.log}"), style="dim"))


def level_table(found: Generation, case: TextCase) -> Table:
    """One row per level."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0), header_style="bold")
    batch = case.workload.batch
    table.add_column(f"batch {batch}", overflow="fold")
    table.add_column("check", no_wrap=True)
    titles = ["first", "token", "p99", "tok/s", *(["/user"] if batch > 1 else []), "roof"]
    titles += ["J/tok"] if any(run.energy for run in case.runs) else []
    titles += ["memory", "start"]
    for name in titles:
        table.add_column(name, justify="right", no_wrap=True)
    for run in case.runs:
        cells = _cells(found, case, run, titles)
        table.add_row(Text(level_text(visible(run.level))), _verdict(run), *cells)
    return table


def _cells(found: Generation, case: TextCase, run: TextRun, titles: list[str]) -> Iterator[str]:
    rate = tokens_per_second(case, run)
    batch = case.workload.batch
    texts = {
        "first": MISSING if not run.first_token else milliseconds_text(run.first_token.value),
        "token": MISSING if not run.token else milliseconds_text(run.token.value),
        "p99": MISSING if not run.slow_token else milliseconds_text(run.slow_token.value),
        "tok/s": MISSING if rate is None else rate_text(rate),
        "/user": MISSING if rate is None else rate_text(rate / batch),
        "roof": share_text(roof_share(found, case, run)),
        "J/tok": f"{run.energy or 0:.2g}",
        "memory": bytes_text(run.memory),
        "start": start_text(run),
    }
    yield from (texts[title] for title in titles)


def _verdict(run: TextRun) -> Text:
    return Text(run.verdict, style=STYLES.get(run.verdict, ""))


def _roof_words(found: Generation) -> str:
    if found.read_rate is None:
        return ""
    rate = decimal_text(found.read_rate.value, "B/s")
    return f"\nroof: a plain read of weights and caches at {rate}, over the time per token"


def text_lines(text: str, width: int = WIDTH) -> list[str]:
    """A text for the terminal, its lines broken."""
    lines = visible(text).split("\n")
    return [part for line in lines for part in textwrap.wrap(line, width) or [""]]
