"""A worker under test: its command and a bundle, and a conversation with it over its pipes."""

from __future__ import annotations

import json
import os
import selectors
import subprocess
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, Self

import msgspec
import numpy as np
import numpy.typing as npt
from safetensors.numpy import load_file

from golow.worker.protocol import TimeReport
from golow.workload.bundle import Bundle

LIMIT = 300.0  # seconds for one answer; torch.compile builds meanwhile
QUIET = 0.2  # seconds in which nothing more may come


class Subject(NamedTuple):
    """A worker's command with its environment, and a bundle that it can run."""

    command: tuple[str, ...]
    environment: Mapping[str, str]
    bundle: Bundle

    @property
    def trains(self) -> bool:
        """True if the bundle's iteration is a training step."""
        return self.bundle.workload.mode == "train"


class Conversation:
    """A worker with nothing but its pipes between it and the test."""

    def __init__(self, subject: Subject) -> None:
        self.subject = subject
        self.folder = tempfile.TemporaryDirectory(prefix="golow-conformance-")
        self.log = Path(self.folder.name) / "log"
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                subject.command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                env={**os.environ, **subject.environment},
            )
        self.loaded: dict[str, Any] = {}

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
        for pipe in (self.process.stdin, self.process.stdout):
            assert pipe is not None
            with suppress(BrokenPipeError):
                pipe.close()
        self.folder.cleanup()

    def load(self) -> None:
        """Load the bundle; the answer is kept in ``loaded``."""
        self.loaded = self.ask(do="load", bundle=str(self.subject.bundle.folder))
        assert self.loaded["ok"] is True, self.loaded

    def ask(self, **request: Any) -> dict[str, Any]:
        """The answer to a request."""
        return self.say(json.dumps(request).encode() + b"\n")

    def say(self, text: bytes) -> dict[str, Any]:
        """The one line with which these bytes are answered."""
        assert self.hear(0) == b"", "it wrote without being asked"
        assert self.process.stdin is not None
        self.process.stdin.write(text)
        self.process.stdin.flush()
        heard = b""
        while not heard.endswith(b"\n"):
            more = self.hear(LIMIT)
            assert more, f"no answer to {text!r}: {self.log.read_text()[-2000:]}"
            heard += more
        assert heard.count(b"\n") == 1, f"more than one line: {heard!r}"
        answer = json.loads(heard)
        assert isinstance(answer, dict)
        return answer

    def hear(self, seconds: float) -> bytes:
        """What comes within that time, at its first coming; nothing also when the worker ended."""
        assert self.process.stdout is not None
        with selectors.DefaultSelector() as selector:
            selector.register(self.process.stdout, selectors.EVENT_READ)
            ready = selector.select(seconds)
        return os.read(self.process.stdout.fileno(), 1 << 20) if ready else b""

    def outputs(
        self, *batches: int, learning_rate: float = 0.1
    ) -> dict[str, npt.NDArray[np.float64]]:
        """The tensors of these batches."""
        file = Path(self.folder.name) / "outputs.safetensors"
        answer = self.ask(
            do="outputs", batches=list(batches), learning_rate=learning_rate, file=str(file)
        )
        assert answer == {"ok": True}
        tensors = {name: np.asarray(t, dtype=np.float64) for name, t in load_file(file).items()}
        file.unlink()
        return tensors

    def time(self, iterations: int, warmup: int) -> TimeReport:
        """The answer to a time request, which is of the protocol's form."""
        answer = self.ask(do="time", iterations=iterations, warmup=warmup)
        assert answer["ok"] is True, answer
        return msgspec.convert(answer, TimeReport, strict=True)

    def challenge(
        self, iterations: int, warmup: int, learning_rate: float = 0.1, **more: Any
    ) -> TimeReport:
        """The answer to a time request with a challenge."""
        challenge = {"first": 0, "reset": True, "learning_rate": learning_rate, **more}
        answer = self.ask(do="time", iterations=iterations, warmup=warmup, challenge=challenge)
        assert answer["ok"] is True, answer
        return msgspec.convert(answer, TimeReport, strict=True)

    def result(self) -> dict[str, npt.NDArray[np.float64]]:
        """The whole result of the last iteration."""
        file = Path(self.folder.name) / "result.safetensors"
        assert self.ask(do="result", file=str(file)) == {"ok": True}
        tensors = {name: np.asarray(t, dtype=np.float64) for name, t in load_file(file).items()}
        file.unlink()
        return tensors


def lives_on(worker: Conversation) -> None:
    """It still answers."""
    assert worker.ask(do="memory")["ok"] is True


def close(first: npt.NDArray[np.float64], second: npt.NDArray[np.float64]) -> bool:
    """Equal but for float32 rounding in the last digits."""
    return bool(np.allclose(first, second, rtol=1e-4, atol=1e-5))
