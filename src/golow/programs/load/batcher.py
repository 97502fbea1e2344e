"""The one batcher of all levels: puts requests that arrive into batches, and notes what each batch
cost.

A batch is closed when it is full, or when its first request has waited as long as is allowed and a
context is free. While all contexts run, requests wait.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol

from golow.programs.load.load_record import ServedBatch
from golow.programs.load.wire import Asked, answer

Send = Callable[[bytes], None]


class Context(Protocol):
    """Runs one batch at a time at a level."""

    def assemble(self, indices: Sequence[int]) -> Any:
        """The samples of these indices as one batch, padded to a bucket."""

    def bucket(self, size: int) -> int:
        """The batch size that so many samples run in."""

    def run(self, batch: Any) -> Any:
        """The level's outputs, complete."""

    def answers(self, outputs: Any, size: int) -> list[bytes]:
        """The answer to each of so many samples."""


class Waiting(NamedTuple):
    """A request in the queue, and when it came."""

    asked: Asked
    came: int


class Batcher:
    """The queue in front of a level, and the threads that serve it, one for each context."""

    def __init__(self, contexts: Sequence[Context], most: int, delay: float) -> None:
        """most: samples in a batch. delay: seconds that a request waits for others at most."""
        self._most, self._delay = most, int(delay * 1e9)
        self._queue: deque[Waiting] = deque()
        self._changed = threading.Condition()
        self._running, self._ended = 0, False
        self._send: Send = _nowhere
        self._hang_up: Callable[[], None] = _nothing
        self.batches: list[ServedBatch] = []
        self.timings: dict[int, tuple[int, int]] = {}
        """Nanoseconds of each request, by its number, in the queue and in the level."""
        self.failure: Exception | None = None
        self._threads = [
            threading.Thread(target=self._serve, args=(one,), daemon=True) for one in contexts
        ]
        for thread in self._threads:
            thread.start()

    def begin(self, send: Send, hang_up: Callable[[], None]) -> None:
        """Begin a run, whose answers go there. What an earlier run left is dropped. hang_up: ends
        the run, called if the level fails."""
        with self._changed:
            self._queue.clear()
            self._changed.wait_for(lambda: not self._running)
            self._send, self._hang_up = send, hang_up
            self.batches, self.timings = [], {}

    def add(self, asked: Sequence[Asked]) -> None:
        """Queue requests that have just come."""
        came = time.monotonic_ns()
        with self._changed:
            self._queue.extend(Waiting(one, came) for one in asked)
            self._changed.notify_all()

    def drop(self) -> None:
        """Forget what waits: its run is over."""
        with self._changed:
            self._queue.clear()
            self._send, self._hang_up = _nowhere, _nothing

    def settle(self) -> None:
        """Wait until no batch runs: all that was served is noted."""
        with self._changed:
            self._changed.wait_for(lambda: not self._running)

    def end(self) -> None:
        """End the threads."""
        with self._changed:
            self._ended = True
            self._changed.notify_all()
        for thread in self._threads:
            thread.join()

    # ------------------------------------------------------------ implementation

    def _serve(self, context: Context) -> None:
        try:
            while batch := self._next():
                self._run(context, *batch)
        except Exception as error:  # of the level; the next request for results reports it
            self.failure = error
            self._hang_up()

    def _next(self) -> tuple[list[Waiting], int, Send] | None:
        """The next batch, how many stay in the queue, and where its answers go; None at the end."""
        with self._changed:
            while not self._ended:
                wait = self._seconds_to_close()
                if wait == 0.0:
                    count = min(self._most, len(self._queue))
                    taken = [self._queue.popleft() for _ in range(count)]
                    self._running += 1
                    return taken, len(self._queue), self._send
                self._changed.wait(wait)
        return None

    def _seconds_to_close(self) -> float | None:
        """Until the next batch is closed; None while nothing waits."""
        if not self._queue:
            return None
        if len(self._queue) >= self._most:
            return 0.0
        left = self._queue[0].came + self._delay - time.monotonic_ns()
        return max(0.0, left / 1e9)

    def _run(self, context: Context, taken: list[Waiting], left: int, send: Send) -> None:
        try:
            closed = time.monotonic_ns()
            batch = context.assemble([one.asked.sample for one in taken])
            began = time.monotonic_ns()
            outputs = context.run(batch)
            ran = time.monotonic_ns()
            found = context.answers(outputs, len(taken))
            pairs = zip(taken, found, strict=True)
            send(b"".join(answer(one.asked.number, content) for one, content in pairs))
            done = time.monotonic_ns()
            self._note(context, taken, left, (closed, began, ran, done))
        finally:
            with self._changed:
                self._running -= 1
                self._changed.notify_all()

    def _note(
        self, context: Context, taken: list[Waiting], left: int, times: tuple[int, int, int, int]
    ) -> None:
        closed, began, ran, done = times
        for one in taken:
            self.timings[one.asked.number] = closed - one.came, ran - began
        self.batches.append(
            ServedBatch(
                closed=closed,
                size=len(taken),
                bucket=context.bucket(len(taken)),
                left=left,
                waited=closed - taken[0].came,
                assembling=began - closed,
                running=ran - began,
                answering=done - ran,
            )
        )


def _nowhere(data: bytes) -> None:
    """Answers of a run that is over go nowhere."""


def _nothing() -> None:
    """There is no run to end."""
