"""A lock that allows one study at a time on a device and names its holder.

The lock is the kernel's (flock on a file in golow's cache), so it ends with the process that holds
it, however that ends. The file's text tells waiting studies who holds it.
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
    """The holder of a lock: the study's name, the process and since when (UTC)."""

    name: str
    process: int
    since: str

    def __str__(self) -> str:
        return f"{self.name} (process {self.process}, since {self.since} UTC)"


class DeviceLock:
    """The right to measure on a device, once `acquire` has returned true.

    device: a name that identifies the device in every process and is valid as a file name.
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
        """Whether this object holds the lock."""
        return self._handle is not None

    def acquire(self, name: str) -> bool:
        """Take the lock if it is free; does not wait. name: of the study."""
        if self._handle is not None:
            return True
        try:
            self.file.parent.mkdir(parents=True, exist_ok=True)
            handle = os.open(self.file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        except OSError as error:
            raise GolowError(
                f"{self.file} cannot be opened: {error.strerror}",
                "it records who measures on a device; set GOLOW_CACHE to use another folder.",
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
        """The current holder, in words."""
        try:
            return str(msgspec.json.decode(self.file.read_bytes(), type=Holder))
        except (OSError, msgspec.MsgspecError):
            return "another process"  # which has not written its name yet

    def release(self) -> None:
        """Release the lock."""
        if self._handle is not None:
            _write(self._handle, b"")
            os.close(self._handle)
            self._handle = None


def _write(handle: int, text: bytes) -> None:
    """Write the file's text, which is only for people: a full disk must not cost the lock."""
    with contextlib.suppress(OSError):
        os.ftruncate(handle, 0)
        os.pwrite(handle, text, 0)
