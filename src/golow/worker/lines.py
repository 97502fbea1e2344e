"""Lines to a process and from it, over its standard streams, without spinning."""

from __future__ import annotations

import contextlib
import os
import selectors
import subprocess

from golow.worker.process import pipes


class Lines:
    """Both pipes of a process. unread: what has come and was not taken."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self._to, self._from = pipes(process)
        self.unread = b""

    @property
    def is_whole(self) -> bool:
        """Whether a whole line can be taken."""
        return b"\n" in self.unread

    def write(self, line: bytes) -> None:
        """Send a line. Raises OSError when nobody reads any more."""
        self._to.write(line)
        self._to.flush()

    def wait(self, seconds: float) -> bool:
        """Block in the kernel until something comes; false if nothing came in that time. Raises
        EOFError when nothing will come any more."""
        with selectors.DefaultSelector() as selector:
            selector.register(self._from, selectors.EVENT_READ)
            if not selector.select(seconds):
                return False
        data = os.read(self._from.fileno(), 1 << 16)
        if not data:
            raise EOFError
        self.unread += data
        return True

    def take(self) -> bytes:
        """The first line, without its end."""
        line, _, self.unread = self.unread.partition(b"\n")
        return line

    def close(self) -> None:
        """Close both pipes; what the process has not read yet is lost."""
        for stream in (self._to, self._from):
            with contextlib.suppress(OSError):
                stream.close()
