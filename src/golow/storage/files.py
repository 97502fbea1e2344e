"""Files that are read whole, and files and folders that appear whole or not at all, whatever ends
the process that writes them.

What is not whole yet has a temporary name beside the final one. After an error nothing is left of
it; after a kill it stays, and nothing reads it. The functions that write raise `OSError`; `writing`
turns that into a `GolowError` that tells the user what to do.
"""

from __future__ import annotations

import os
import shutil
import stat
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, TypeVar

import msgspec

from golow.records.errors import GolowError

Kind = TypeVar("Kind")

CACHE_HINT = "free some space, or name another folder: GOLOW_CACHE=/large/disk golow ..."

MOST_BYTES = 1 << 26  # of a file that is read whole; the largest records have some MiB


# ---------------------------------------------------------------- reading


def is_file(path: Path) -> bool:
    """True if a file is there; raises `GolowError` for a folder, and where the system does
    not report."""
    if is_folder(path):
        raise _folder(path)
    return path.is_file()


def is_folder(path: Path) -> bool:
    """True if a folder is there; raises `GolowError` where the system does not report it."""
    try:
        return path.is_dir()
    except (OSError, ValueError) as error:
        raise _unreadable(path, error) from error


def require_there(path: Path, hint: str = "") -> None:
    """Raise `GolowError` where neither a file nor a folder is."""
    if not is_folder(path) and not path.exists():
        raise GolowError(f"there is no file or folder {path}", hint)


def require_no_file(folder: Path, hint: str) -> None:
    """Raise `GolowError` where a folder is expected and something else is. It may not exist yet."""
    if not is_folder(folder) and folder.exists():
        raise GolowError(f"{folder} is a file, not a folder", hint)


def require_file(path: Path, hint: str = "") -> None:
    """Raise `GolowError` for what has no end or no bytes: nothing, a folder, a pipe, a device."""
    try:
        mode = path.stat().st_mode
    except FileNotFoundError as error:
        raise GolowError(f"there is no file {path}", hint) from error
    except (OSError, ValueError) as error:
        raise _unreadable(path, error) from error
    if stat.S_ISDIR(mode):
        raise _folder(path)
    if not stat.S_ISREG(mode):
        raise GolowError(f"{path} is a pipe or a device, not a file", hint)


def read_whole(path: Path, most: int = MOST_BYTES) -> bytes:
    """All bytes of a small file; raises `GolowError` if it is not a file, or has more than that."""
    require_file(path)
    try:
        size = path.stat().st_size
        if size > most:
            raise GolowError(f"{path} has {size:,} bytes; golow reads up to {most:,}")
        return path.read_bytes()
    except OSError as error:
        raise _unreadable(path, error) from error


def read_text(path: Path, hint: str = "save it as UTF-8.", most: int = MOST_BYTES) -> str:
    """All text of a small file; raises `GolowError` like `read_whole`, and if it is not UTF-8."""
    try:
        return read_whole(path, most).decode()
    except UnicodeDecodeError as error:
        line = error.object.count(b"\n", 0, error.start) + 1
        wrong = f"byte 0x{error.object[error.start]:02x} in line {line}"
        raise GolowError(f"{path} is not UTF-8 text: {wrong}", hint) from error


def read_json(path: Path, kind: type[Kind], most: int = MOST_BYTES) -> Kind:
    """The record in a small JSON file; raises `GolowError` like `read_text`, or if it has none."""
    hint = "it may be truncated."
    text = read_text(path, hint, most)
    try:
        return msgspec.json.decode(text, type=kind)
    except (msgspec.DecodeError, RecursionError) as error:
        raise GolowError(f"{path} cannot be read: {error}", hint) from error


def _folder(path: Path) -> GolowError:
    return GolowError(f"{path} is a folder, not a file", "name a file.")


def _unreadable(path: Path, error: OSError | ValueError) -> GolowError:
    why = (error.strerror if isinstance(error, OSError) else "") or str(error)
    return GolowError(f"{path} cannot be read: {why}")


# ---------------------------------------------------------------- writing


def require_place(file: Path) -> None:
    """Raise `GolowError` unless a file can be written there: now rather than after minutes."""
    if is_folder(file):
        raise _folder(file)
    if not is_folder(file.parent):
        raise GolowError(
            f"{file} cannot be written: there is no folder {file.parent}", "create it first."
        )
    require_writable(file.parent, "name another file.", file)


def require_writable(folder: Path, hint: str, file: Path | None = None) -> None:
    """Raise `GolowError` unless files can be written into the folder, or into the first folder
    above it that exists: now rather than after minutes. Leaves nothing behind. file: named by the
    error instead of the folder."""
    with writing(file or folder, hint):
        there = next(place for place in (folder, *folder.parents) if place.exists())
        tempfile.TemporaryFile(dir=there).close()


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

    folder: an entry of a cache; the temporary folder is beside it, its name begins with prefix.
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
