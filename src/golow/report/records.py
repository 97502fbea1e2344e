"""The list of a folder of records, as `golow show runs` prints it."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from rich import box
from rich.table import Table
from rich.text import Text

from golow.records.errors import GolowError
from golow.report.console import fits, visible, wide_console


class Listed(NamedTuple):
    """One record in the folder. says: the fastest level of a comparison, or why it is unreadable;
    empty for other kinds."""

    name: str
    kind: str
    says: str


def render_records(folder: Path, found: list[Listed]) -> None:
    """Print the list; below the width of its longest name, a line a figure."""
    console = wide_console()
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0), header_style="bold")
    for title in ("record", "kind", "fastest level"):
        table.add_column(title, no_wrap=True)
    for one in found:
        table.add_row(Text(visible(one.name)), one.kind, Text(visible(one.says)))
    if fits(table, console):
        console.print(table)
    else:
        for one in found:
            console.print(Text(f"{visible(one.name)}\n  {one.kind} {visible(one.says)}"))
    console.print(Text(f"golow show {visible(str(folder))}/RECORD shows one", style="dim"))


def fastest(path: Path) -> str:
    """The fastest level that matches, and its time over eager's; or why there is none.

    path: the folder of a comparison."""
    from golow.programs.comparison.store import load

    try:
        runs = load(path).runs
    except GolowError:
        return "cannot be read"
    if not any(run.time for run in runs):
        return "nothing was timed"
    faster = [
        run
        for run in runs
        if run.check.verdict == "match" and run.ratio is not None and run.ratio.word == "faster"
    ]
    best = min(faster, key=lambda run: run.ratio.value if run.ratio else 1.0, default=None)
    if best is None or best.ratio is None:
        return "none is clearly faster than eager"
    return f"{best.level}, {best.ratio.value:.3f} of eager"
