"""Files and folders that appear whole or not at all, whatever ends the process that writes them.

What is not whole yet has a temporary name beside the final one. After an error nothing is left of
it; after a kill it stays, and nothing reads it. The functions that write raise `OSError`; `writing`
turns that into a `GolowError` that tells the user what to do.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from golow.record import GolowError

CACHE_HINT = "free some space, or name another folder: GOLOW_CACHE=/large/disk golow ..."


@contextmanager
def writing(place: str | Path, hint: str) -> Iterator[None]:
    """An `OSError` in the block becomes a `GolowError`: place cannot be written, why, and the hint.

    place: a file or folder, or a text that names one.
    """
    try:
        yield
    except OSError as error:
        raise GolowError(f"{place} cannot be written: {error.strerror or error}", hint) from error


def write_whole(path: Path, data: bytes) -> None:
    """Write the data as the whole content of the file."""
    with replacing(path) as file:
        file.write(data)


@contextmanager
def replacing(path: Path) -> Iterator[BinaryIO]:
    """A file to write to, which replaces path when the block ends without an error.

    Its temporary name begins with a dot. Several processes may write the same path: the last one
    that is done wins.
    """
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    draft = Path(name)
    try:
        with os.fdopen(handle, "wb") as file:
            yield file
        draft.chmod(0o644)
        move_into_place(draft, path)
    except BaseException:
        draft.unlink(missing_ok=True)
        raise


def move_into_place(draft: Path, path: Path) -> None:
    """Rename a finished file, which is on the disk before it has its name."""
    with draft.open("rb") as file:
        os.fsync(file.fileno())
    draft.replace(path)


@contextmanager
def building(folder: Path, prefix: str, is_whole: Callable[[], bool]) -> Iterator[Path]:
    """An empty folder to fill, which becomes ``folder`` when the block ends without an error.

    folder: an entry of a cache; the temporary folder lies beside it, its name begins with prefix.
    is_whole: whether ``folder`` is there and whole. If so, another process was faster, and its
    folder stays; a damaged one is replaced.

    Raises `GolowError` where no folder can be made; an `OSError` of the block is passed on.
    """
    with writing(f"the cache {folder.parent}", CACHE_HINT):
        folder.parent.mkdir(parents=True, exist_ok=True)
        draft = Path(tempfile.mkdtemp(prefix=prefix, dir=folder.parent))
    try:
        yield draft
        draft.chmod(0o755)
        _take_place(draft, folder, is_whole)
    finally:
        shutil.rmtree(draft, ignore_errors=True)


def _take_place(draft: Path, folder: Path, is_whole: Callable[[], bool]) -> None:
    if folder.exists() and not is_whole():
        damaged = draft.with_name(f"{draft.name}-damaged")
        folder.rename(damaged)
        shutil.rmtree(damaged, ignore_errors=True)
    try:
        draft.rename(folder)
    except OSError:
        if not is_whole():
            raise
