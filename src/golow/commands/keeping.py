"""Results that took minutes are not lost: if a record cannot be saved where it was asked for, it is
saved in the temporary folder."""

from __future__ import annotations

import shlex
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from golow.records.errors import GolowError

Save = Callable[[Path], Path]
"""Writes a record into a folder, or into one of its own there; returns that."""


def shown_and_saved(show: Callable[[], None], save: Save, out: Path) -> Path:
    """Show a result, then save its record; returns the folder. Whatever goes wrong with one of
    them, such as Ctrl-C or a full disk, the other is done."""
    try:
        show()
    except BaseException:
        print(f"record: {saved(save, out)}", file=sys.stderr)
        raise
    return saved(save, out)


def saved(save: Save, out: Path) -> Path:
    """Save a record under out; returns the folder. Raises `GolowError` as `rescued` says if it
    cannot be."""
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
        also = f"{error.message}; neither can the temporary folder be written ({second.args[-1]})"
        return GolowError(also, error.hint)
    return GolowError(
        f"{error.message}\nthe record is kept in {folder}",
        f"{error.hint.rstrip('.')}; to keep it: mv {shlex.quote(str(folder))} FOLDER",
    )
