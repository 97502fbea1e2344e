"""List the records in a folder: `golow show runs`."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from rich import box
from rich.table import Table
from rich.text import Text

from golow.levels import ladder
from golow.records.errors import GolowError
from golow.report.console import fits, visible, wide_console
from golow.report.record_kinds import COMPARISON, KINDS, kind_of
from golow.storage.files import is_folder

LISTED = [kind for kind in KINDS if kind.listed]


class Listed(NamedTuple):
    """One record in the folder. ``says``: the fastest level of a comparison, or why it is not read;
    empty for other kinds."""

    name: str
    kind: str
    says: str


def is_folder_of_records(path: Path) -> bool:
    """True if it is not a record itself but a folder with at least one in it."""
    return is_folder(path) and not kind_of(path, LISTED) and bool(records_in(path, read=False))


def records_in(folder: Path, *, read: bool = True) -> list[Listed]:
    """The records in the folder, by name. read: also read what each comparison found."""
    found = []
    try:
        paths = sorted(folder.iterdir())
    except OSError as error:
        raise GolowError(f"{folder} cannot be read: {error.strerror}") from error
    for path in paths:
        kind = kind_of(path, LISTED) if is_folder(path) else None
        if kind is not None:
            says = _fastest(path) if read and kind is COMPARISON else ""
            found.append(Listed(path.name, kind.name, says))
    return found


def render_records(folder: Path, found: list[Listed]) -> None:
    """Print the list; below the width of its longest name, a line per figure."""
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


def _fastest(path: Path) -> str:
    """The fastest level that matches, and its time over eager's; or why there is none.

    path: the folder of a comparison."""
    from golow.programs.comparison.store import load

    try:
        comparison = load(path)
    except GolowError:
        return "cannot be read"
    runs, baseline = comparison.runs, ladder.baseline(comparison.workload.ranks)
    if not any(run.time for run in runs):
        return "nothing was timed"
    faster = [
        run
        for run in runs
        if run.check.verdict == "match" and run.ratio is not None and run.ratio.word == "faster"
    ]
    best = min(faster, key=lambda run: run.ratio.value if run.ratio else 1.0, default=None)
    if best is None or best.ratio is None:
        return f"no level is clearly faster than {baseline}"
    return f"{best.level}, {best.ratio.value:.3f} of {baseline}"
