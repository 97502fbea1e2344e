"""Exchange of lines with a process over its standard streams, without spinning."""

from __future__ import annotations

import contextlib
import os
import selectors
import subprocess

from golow.worker.process import pipes


class Lines:
    """Both pipes of a process. unread: received data that was not taken yet."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self._to, self._from = pipes(process)
        self.unread = b""

    @property
    def is_whole(self) -> bool:
        """True if a whole line is available."""
        return b"\n" in self.unread

    def write(self, line: bytes) -> None:
        """Send a line. Raises OSError if the reader has closed the pipe."""
        self._to.write(line)
        self._to.flush()

    def wait(self, seconds: float) -> bool:
        """Block in the kernel until data arrives; false if none arrives within that time. Raises
        EOFError if the writer has closed the pipe."""
        if not self.has_data(seconds):
            return False
        data = os.read(self._from.fileno(), 1 << 16)
        if not data:
            raise EOFError
        self.unread += data
        return True

    def has_data(self, seconds: float) -> bool:
        """Block in the kernel until data, or the end of it, can be read; false if neither comes
        within that time."""
        with selectors.DefaultSelector() as selector:
            selector.register(self._from, selectors.EVENT_READ)
            return bool(selector.select(seconds))

    def fileno(self) -> int:
        """Descriptor of the pipe from the process, for a selector."""
        return self._from.fileno()

    def take(self) -> bytes:
        """The first line, without its end."""
        line, _, self.unread = self.unread.partition(b"\n")
        return line

    def close(self) -> None:
        """Close both pipes; data that the process has not read is lost."""
        for stream in (self._to, self._from):
            with contextlib.suppress(OSError):
                stream.close()
