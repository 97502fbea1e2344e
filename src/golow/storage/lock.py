"""A folder that one process at a time writes to, by a lock of the kernel (filelock)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock, Timeout

from golow.records.errors import GolowError
from golow.storage.files import writing


@contextmanager
def held(folder: Path, taken: str, hint: str, patience: float = 0.0) -> Iterator[None]:
    """Lock the folder for this process; the lock ends with the block or the process, however that
    ends.

    patience: seconds to wait for another holder. Raises `GolowError`: taken, if there still is
    one then; with the hint, if the folder cannot be written.
    """
    lock = FileLock(folder / ".lock", timeout=patience, poll_interval=0.02)
    with writing(folder, hint):
        try:
            lock.acquire()
        except Timeout as error:
            raise GolowError(taken, "wait until it is done, or end it.") from error
    try:
        yield
    finally:
        lock.release()
