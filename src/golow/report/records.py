"""List the records in a folder: `golow show runs`."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from rich import box
from rich.table import Table
from rich.text import Text

from golow.records.errors import GolowError
from golow.report.console import fits, visible, wide_console
from golow.report.findings import FINDINGS
from golow.report.record_kinds import KINDS, RecordKind, kind_of
from golow.storage.files import is_folder
from golow.storage.shell_words import shell_word

LISTED = [kind for kind in KINDS if kind.listed]


class Listed(NamedTuple):
    """One record in the folder. ``says``: its finding in a few words, empty if it is not read."""

    name: str
    kind: str
    says: str


def is_folder_of_records(path: Path) -> bool:
    """True if it is not a record itself but a folder with at least one in it."""
    return is_folder(path) and not kind_of(path, LISTED) and bool(records_in(path, read=False))


def records_in(folder: Path, *, read: bool = True) -> list[Listed]:
    """The records in the folder, by name. read: also read their findings."""
    found = []
    try:
        paths = sorted(folder.iterdir())
    except OSError as error:
        raise GolowError(f"{folder} cannot be read: {error.strerror}") from error
    for path in paths:
        kind = kind_of(path, LISTED) if is_folder(path) else None
        if kind is not None:
            says = _finding(path, kind) if read else ""
            found.append(Listed(path.name, kind.name, says))
    return found


def render_records(folder: Path, found: list[Listed]) -> None:
    """Print the list; below the width of its longest name, a line per figure."""
    console = wide_console()
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0), header_style="bold")
    for title in ("record", "kind", "finding"):
        table.add_column(title, no_wrap=True)
    for one in found:
        table.add_row(Text(visible(one.name)), one.kind, Text(visible(one.says)))
    if fits(table, console):
        console.print(table)
    else:
        for one in found:
            console.print(Text(f"{visible(one.name)}\n  {one.kind} {visible(one.says)}"))
    command = f"golow show {visible(shell_word(folder / 'RECORD'))}"
    console.print(Text(f"{command} shows one", style="dim"))


def _finding(path: Path, kind: RecordKind) -> str:
    """The finding of the record, or that it cannot be read."""
    try:
        return FINDINGS[kind.name](kind.load(path))
    except GolowError:
        return "cannot be read"
