"""One study at a time on a device: a lock with the name of who holds it.

The lock is the kernel's (flock on a file in golow's cache), so it ends with the process that holds
it, however that ends. The file's text is for the one who waits.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from datetime import UTC, datetime
from pathlib import Path
from typing import Self

import msgspec

from golow.record import GolowError, Record


class Holder(Record, frozen=True, kw_only=True):
    """Who holds a lock: a study's name, the process and since when (UTC)."""

    name: str
    process: int
    since: str

    def __str__(self) -> str:
        return f"{self.name} (process {self.process}, since {self.since} UTC)"


class DeviceLock:
    """The right to measure on a device, from when `acquire` returns true.

    device: a name that is the same for all who mean the device, and a name of a file.
    """

    def __init__(self, device: str, cache: Path) -> None:
        self.device = device
        self.file = cache / "locks" / f"{device}.lock"
        self._handle: int | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        self.release()

    @property
    def held(self) -> bool:
        """Whether this object has it."""
        return self._handle is not None

    def acquire(self, name: str) -> bool:
        """Take the lock in the name of a study, if it is free; does not wait."""
        if self._handle is not None:
            return True
        try:
            self.file.parent.mkdir(parents=True, exist_ok=True)
            handle = os.open(self.file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        except OSError as error:
            raise GolowError(
                f"{self.file} cannot be opened: {error.strerror}",
                "it says who measures on a device; name another folder with GOLOW_CACHE.",
            ) from error
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(handle)
            return False
        self._handle = handle
        since = datetime.now(UTC).strftime("%Y-%m-%d %H:%M:%S")
        _write(handle, msgspec.json.encode(Holder(name=name, process=os.getpid(), since=since)))
        return True

    def holder(self) -> str:
        """Who holds it now, in words."""
        try:
            return str(msgspec.json.decode(self.file.read_bytes(), type=Holder))
        except (OSError, msgspec.MsgspecError):
            return "another process"  # which has not written its name yet

    def release(self) -> None:
        """Give it back."""
        if self._handle is not None:
            _write(self._handle, b"")
            os.close(self._handle)
            self._handle = None


def _write(handle: int, text: bytes) -> None:
    """The text is for people: a full disk must not cost the lock."""
    with contextlib.suppress(OSError):
        os.ftruncate(handle, 0)
        os.pwrite(handle, text, 0)
