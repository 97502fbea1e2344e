"""A worker on raw lines: what `golow.worker.client` would refuse to send can be sent here."""

from __future__ import annotations

import json
import os
import select
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

TIME_LIMIT = 60.0


class RawWorker:
    """One worker process that is asked line by line and must answer within a limit."""

    def __init__(self, command: Sequence[str | Path]) -> None:
        self.process = subprocess.Popen(
            [str(part) for part in command],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
        )
        self._buffer = b""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.process.kill()
        self.process.wait()
        for stream in (self.process.stdin, self.process.stdout):
            if stream is not None:
                stream.close()

    def request(self, **fields: Any) -> dict[str, Any]:
        """Send a request, return the answer."""
        return self.line(json.dumps(fields).encode())

    def line(self, text: bytes) -> dict[str, Any]:
        """Send a line as it is, return the answer."""
        assert self.process.stdin is not None
        self.process.stdin.write(text + b"\n")
        self.process.stdin.flush()
        answer = json.loads(self._read_line())
        assert isinstance(answer, dict)
        return answer

    def _read_line(self) -> bytes:
        assert self.process.stdout is not None
        descriptor = self.process.stdout.fileno()
        deadline = time.monotonic() + TIME_LIMIT
        while b"\n" not in self._buffer:
            ready, _, _ = select.select([descriptor], [], [], max(0, deadline - time.monotonic()))
            assert ready, f"no answer within {TIME_LIMIT} s"
            data = os.read(descriptor, 1 << 16)
            assert data, f"the worker ended with status {self.process.wait()}"
            self._buffer += data
        text, _, self._buffer = self._buffer.partition(b"\n")
        return text
