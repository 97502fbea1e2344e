"""A lock that allows one study at a time on a device and names its holder.

The lock is the kernel's (filelock, on a file in golow's cache), so it ends with the process that
holds it, however that ends. The file's text tells waiting studies who holds it.
"""

from __future__ import annotations

import contextlib
import os
from datetime import UTC, datetime
from pathlib import Path
from typing import Self

import msgspec
from filelock import FileLock, Timeout

from golow.records.errors import GolowError
from golow.records.record import Record


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
        # Without flock it would write into the file itself, which is the holder's; then there is no
        # lock. A thread other than the one that took it may release it.
        self._lock = FileLock(self.file, timeout=0, thread_local=False, fallback_to_soft=False)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        self.release()

    @property
    def held(self) -> bool:
        """True if this object holds the lock."""
        return self._lock.is_locked

    def acquire(self, name: str) -> bool:
        """Take the lock if it is free; does not wait. name: of the study."""
        if self.held:
            return True
        try:
            self.file.parent.mkdir(parents=True, exist_ok=True)
            self._lock.acquire()
        except Timeout:
            return False
        except OSError as error:
            raise GolowError(
                f"{self.file} cannot be opened: {error.strerror}",
                "it records which process measures on a device; set GOLOW_CACHE to use another "
                "folder.",
            ) from error
        since = datetime.now(UTC).strftime("%Y-%m-%d %H:%M:%S")
        self._write(msgspec.json.encode(Holder(name=name, process=os.getpid(), since=since)))
        return True

    def holder(self) -> str:
        """The current holder, in words."""
        try:
            return str(msgspec.json.decode(self.file.read_bytes(), type=Holder))
        except (OSError, msgspec.MsgspecError):
            return "another process"  # which has not written its name yet

    def release(self) -> None:
        """Release the lock."""
        if self.held:
            self._write(b"")
            self._lock.release()

    def _write(self, text: bytes) -> None:
        """Write the file's text, which is only for people: a full disk must not cost the lock."""
        with contextlib.suppress(OSError):
            self.file.write_bytes(text)
