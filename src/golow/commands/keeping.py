"""Save a record in the requested folder or, if that fails, in the temporary folder: results that
took minutes are not lost."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Protocol, TypeVar

from golow.commands.json_output import beside_json
from golow.records.errors import GolowError
from golow.storage.shell_words import shell_word


class Drawn(Protocol):
    """A result of a program with figures."""

    def save(self, folder: Path) -> Path:
        """Write the record into its own folder there; return that."""

    def figures(self, folder: str | Path) -> object:
        """Draw the figures into a folder."""


Result = TypeVar("Result", bound=Drawn)
Save = Callable[[Path], Path]
"""Writes a record into a folder, or into one of its own there; returns that."""


def shown_and_saved(show: Callable[[], None], save: Save, out: Path) -> Path:
    """Show a result, then save its record; returns the folder. If one of them fails, for example by
    Ctrl-C or a full disk, the other is still done."""
    try:
        show()
    except BaseException:
        print(f"record: {saved(save, out)}", file=sys.stderr)
        raise
    return saved(save, out)


def keep(
    result: Result, show: Callable[[Result], None], out: Path, json: str | None, report: Path | None
) -> None:
    """Show the result, save it with its figures if matplotlib is installed, then write the page."""
    from golow.report.html_report import write_report

    folder = shown_and_saved(lambda: show(result), result.save, out)
    told = beside_json(json)
    print(f"record: {folder}", file=told)
    if find_spec("matplotlib") is not None:
        result.figures(folder)
    if report is not None:
        print(f"report: {write_report([folder], report)}", file=told)


def saved(save: Save, out: Path) -> Path:
    """Save a record under out; returns the folder. If it cannot be saved there, raises the
    `GolowError` of `rescued`."""
    try:
        return save(out)
    except GolowError as error:
        raise rescued(save, error) from error


def rescued(save: Save, error: GolowError) -> GolowError:
    """Save a record in the temporary folder, since this error happened elsewhere; returns the error
    with the place of the record and the command that keeps it."""
    try:
        folder = save(Path(tempfile.mkdtemp(prefix="golow-record-")))
    except (GolowError, OSError) as second:
        also = f"{error.message}; the temporary folder cannot be written either ({second.args[-1]})"
        return GolowError(also, error.hint)
    return GolowError(
        f"{error.message}\nthe record is in a temporary folder, {folder}",
        f"{error.hint.rstrip('.')}; to keep it: mv {shell_word(folder)} FOLDER",
    )
