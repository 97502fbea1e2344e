"""The folder that a record gets: a new one for each record, with a name that stays within it."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from golow.records.errors import GolowError
from golow.storage.files import writing
from golow.storage.names import is_plain_name

MOST = 1000  # records of one name in a folder


@contextmanager
def filled(folder: Path, hint: str) -> Iterator[None]:
    """Write a record's files into its folder in the block. If that fails, a folder that was empty
    is removed again, and an `OSError` becomes a `GolowError` with the hint."""
    with filled_or_removed(folder), writing(folder, hint):
        yield


@contextmanager
def filled_or_removed(folder: Path) -> Iterator[None]:
    """Write into the folder in the block. If that fails, a folder that was empty is removed."""
    was_empty = not any(folder.iterdir())
    try:
        yield
    except BaseException:
        if was_empty:
            shutil.rmtree(folder, ignore_errors=True)
        raise


def own_folder(parent: Path, name: str, is_it: Callable[[Path], bool]) -> Path:
    """Make and return the folder ``name`` under parent for a record; where it holds another one,
    ``name-2`` and so on. is_it: whether a folder holds just this record already, which is written
    again then. Two processes never get the same folder. Raises `GolowError` for a name that is
    none, `OSError` if no folder can be made."""
    if not is_plain_name(name):
        raise GolowError(f"the record is called {name!r}, which is not a folder name")
    parent.mkdir(parents=True, exist_ok=True)
    for number in range(1, MOST):
        folder = parent / (name if number == 1 else f"{name}-{number}")
        try:
            folder.mkdir()
        except FileExistsError:
            if not is_it(folder):
                continue
        return folder
    raise GolowError(f"there are too many records named {name} in {parent}")
