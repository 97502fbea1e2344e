"""A file that appears whole or not at all, whatever ends the process that writes it."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from golow.record import GolowError


@contextmanager
def replacing(path: Path) -> Iterator[BinaryIO]:
    """A file under a temporary name beside path, which takes path's name when all is on the disk.

    The temporary name begins with a dot. After an error nothing is left of it; after a kill it
    stays, and nothing ever reads it. Raises `GolowError` when the disk is full or the folder
    cannot be written.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    except OSError as error:
        raise _cannot_write(path, error) from error
    try:
        with os.fdopen(handle, "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        Path(name).chmod(0o644)
        Path(name).replace(path)
    except BaseException as error:
        Path(name).unlink(missing_ok=True)
        if isinstance(error, OSError):
            raise _cannot_write(path, error) from error
        raise


def _cannot_write(path: Path, error: OSError) -> GolowError:
    return GolowError(
        f"{path} cannot be written: {error.strerror or error}",
        "free some space, or name another folder: GOLOW_CACHE=/large/disk golow ...",
    )
