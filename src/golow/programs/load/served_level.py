"""The system under test: a process that builds one level and answers the load generator's requests.

``python -m golow.programs.load.served_level`` takes lines of JSON from golow, as a worker does:
``load``, ``begin`` before a run, ``served`` after it, ``quit``. Requests come through a socket.
"""

from __future__ import annotations

import os
import signal
import socket
import sys
import threading
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO, Protocol

import msgspec

from golow.observer import Silent
from golow.programs.load.batcher import Batcher, Context
from golow.programs.load.lengths import Lengths
from golow.programs.load.load_record import ServedBatch
from golow.programs.load.wire import Requests, short_path
from golow.records.record import Record
from golow.worker.process import reset_resident_peak, resident_bytes
from golow.worker.protocol import line
from golow.worker.refusals import refused
from golow.worker.serve import end_with_parent
from golow.workload.import_path import module_command

COMMAND = module_command(__spec__.name if __spec__ else __name__)


class LoadRequest(Record, frozen=True, kw_only=True):
    """Request to build a level. socket: where to wait for the load generator. lengths: of the
    samples, if they differ."""

    bundle: str
    level: str
    socket: str
    buckets: tuple[int, ...]
    lengths: Lengths | None = None
    contexts: int
    most: int
    delay: float
    cache: str | None = None


class Served(Record, frozen=True, kw_only=True):
    """Results of a run. waits, runs: nanoseconds of each request, by its number, in the queue and
    in the level; -1 for one that was not served. resident, resident_peak: bytes."""

    batches: tuple[ServedBatch, ...]
    waits: tuple[int, ...]
    runs: tuple[int, ...]
    resident: int
    resident_peak: int


class Build(Protocol):
    """Builds the contexts of a level."""

    def __call__(self, asked: LoadRequest) -> Sequence[Context]:
        """The contexts, which the batcher warms up."""


def built(asked: LoadRequest) -> Sequence[Context]:
    """The contexts of golow's level of that name."""
    from golow.programs.load.contexts import Sizes, contexts_of  # imports torch
    from golow.programs.load.samples import samples_of
    from golow.workload.bundle import Bundle

    cache = Path(asked.cache) if asked.cache is not None else None
    bundle = Bundle(Path(asked.bundle))
    samples = samples_of(bundle, asked.lengths)
    sizes = Sizes(asked.buckets, asked.contexts)
    return contexts_of(asked.level, bundle, samples, sizes, cache, Silent())


class ServedLevel:
    """The level of this process, its batcher, and the thread that reads requests."""

    def __init__(self, build: Build) -> None:
        self._build = build

    def answer(self, request: dict[str, Any]) -> dict[str, Any]:
        """Answer a request from golow."""
        kind = request["do"]
        if kind == "load":
            self._load(msgspec.convert(request, LoadRequest))
        elif kind == "begin":
            self._batcher.drop()
            reset_resident_peak(os.getpid())
        elif kind == "served":
            self._write(Path(request["file"]))
        return {}

    def _load(self, asked: LoadRequest) -> None:
        contexts = self._build(asked)
        self._batcher = Batcher(contexts, asked.most, asked.delay)
        self._batcher.wait_ready()
        listening = socket.socket(socket.AF_UNIX)
        with short_path(asked.socket) as path:
            listening.bind(path)
        listening.listen(1)
        threading.Thread(target=self._listen, args=(listening,), daemon=True).start()

    def _listen(self, listening: socket.socket) -> None:
        """Serve one load generator after the other."""
        while True:
            connection, _ = listening.accept()
            with connection, suppress(OSError):  # a generator may end at any time
                self._batcher.begin(
                    partial(_send, connection), partial(connection.shutdown, socket.SHUT_RDWR)
                )
                requests = Requests(connection)
                while asked := requests.received():
                    self._batcher.add(asked)
            self._batcher.drop()

    def _write(self, file: Path) -> None:
        batcher = self._batcher
        batcher.settle()
        if batcher.failure is not None:
            raise batcher.failure
        count = max(batcher.timings, default=-1) + 1
        times = [batcher.timings.get(number, (-1, -1)) for number in range(count)]
        memory = resident_bytes(os.getpid())
        found = Served(
            batches=tuple(batcher.batches),
            waits=tuple(wait for wait, _ in times),
            runs=tuple(run for _, run in times),
            resident=memory["resident"],
            resident_peak=memory.get("resident_peak", memory["resident"]),
        )
        file.write_bytes(msgspec.json.encode(found))


def _send(connection: socket.socket, data: bytes) -> None:
    """Send answers; a generator that is gone needs none."""
    with suppress(OSError):
        connection.sendall(data)


def serve(build: Build, requests: BinaryIO, answers: BinaryIO) -> None:
    """Answer each line until `quit` or the end of the input."""
    level = ServedLevel(build)
    for text in requests:
        request = msgspec.json.decode(text, type=dict[str, Any])
        if request["do"] == "quit":
            return
        try:
            answer = {"ok": True, **level.answer(request)}
        except Exception as error:
            answer = refused(error)
        answers.write(line(answer))
        answers.flush()


def main(build: Build = built) -> None:
    """Serve on standard input and output until the end of the input; then end at once, whatever a
    level's threads do."""
    end_with_parent()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent decides when this process ends
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what a model prints goes to the log
    serve(build, sys.stdin.buffer, answers)
    os._exit(0)


if __name__ == "__main__":
    main()
