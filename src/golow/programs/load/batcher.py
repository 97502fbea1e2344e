"""The batcher that all levels share: puts requests into batches as they arrive, and records the
cost of each batch. A batch has samples of one length bucket. It is closed when it is full, or when
the oldest request has waited for the allowed time and a context is free. While all contexts run,
requests wait.
"""

from __future__ import annotations

import threading
import time
from collections import defaultdict, deque
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple, Protocol, runtime_checkable

from golow.programs.load.load_record import ServedBatch
from golow.programs.load.wire import Asked, answers

Send = Callable[[bytes], None]


class Bucket(NamedTuple):
    """The batch size and length in which samples run, and the number of their own tokens. A sample
    without a length is one token."""

    batch: int
    length: int
    tokens: int


class Batched(Protocol):
    """Takes one batch at a time. All calls but `group` come from one thread."""

    def warm_up(self) -> None:
        """Create everything that later batches use, so that no request pays for a first call."""

    def group(self, index: int) -> int:
        """Number of a sample's group; samples of one group may share a batch."""

    def bucket(self, indices: Sequence[int]) -> Bucket:
        """The sizes that these samples run in."""

    def assemble(self, indices: Sequence[int]) -> Any:
        """The samples of these indices as one batch, padded to a bucket."""

    def answers(self, outputs: Any, indices: Sequence[int]) -> list[bytes]:
        """The answer to each of these samples, or its next part."""


class AtOnce(Batched, Protocol):
    """A context that returns all outputs of a batch together."""

    def run(self, batch: Any) -> Any:
        """The level's outputs, complete."""


@runtime_checkable
class Streaming(Batched, Protocol):
    """A context that returns outputs one by one, such as the tokens of a text."""

    def stream(self, batch: Any) -> Iterator[Any]:
        """Yield each output as soon as it is available."""


Context = AtOnce | Streaming


class Waiting(NamedTuple):
    """A request in the queue, and its time of arrival."""

    asked: Asked
    came: int


class Batcher:
    """The queue in front of a level, and the threads that serve it, one for each context."""

    def __init__(self, contexts: Sequence[Context], most: int, delay: float) -> None:
        """most: largest number of samples in a batch. delay: longest time in seconds that a request
        waits for others."""
        self._most, self._delay = most, int(delay * 1e9)
        self._group = contexts[0].group
        self._queues: dict[int, deque[Waiting]] = defaultdict(deque)
        self._warming, self._cold = threading.Lock(), len(contexts)
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

    def wait_ready(self) -> None:
        """Wait until all contexts are warm. Raises a level's errors."""
        with self._changed:
            self._changed.wait_for(lambda: not self._cold or self.failure is not None)
        if self.failure is not None:
            raise self.failure

    def begin(self, send: Send, hang_up: Callable[[], None]) -> None:
        """Begin a run, whose answers go there. Remains of an earlier run are dropped. hang_up: ends
        the run; called if the level fails."""
        with self._changed:
            self._queues.clear()
            self._changed.wait_for(lambda: not self._running)
            self._send, self._hang_up = send, hang_up
            self.batches, self.timings = [], {}

    def add(self, asked: Sequence[Asked]) -> None:
        """Queue requests that have just arrived."""
        came = time.monotonic_ns()
        with self._changed:
            for one in asked:
                self._queues[self._group(one.sample)].append(Waiting(one, came))
            self._changed.notify_all()

    def drop(self) -> None:
        """Drop waiting requests: their run is over."""
        with self._changed:
            self._queues.clear()
            self._send, self._hang_up = _nowhere, _nothing

    def settle(self) -> None:
        """Wait until no batch runs and all results are recorded."""
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
            with self._warming:  # in this thread: what CUDA graphs record belongs to a thread
                context.warm_up()
            with self._changed:
                self._cold -= 1
                self._changed.notify_all()
            while batch := self._next():
                self._run(context, *batch)
        except Exception as error:  # of the level; the next request for results reports it
            with self._changed:
                self.failure = error
                self._changed.notify_all()
            self._hang_up()

    def _next(self) -> tuple[list[Waiting], int, Send] | None:
        """The next batch, the number of requests left in the queue, and the destination of the
        answers; None at the end."""
        with self._changed:
            while not self._ended:
                queue, wait = self._first_to_close()
                if queue and wait == 0.0:
                    count = min(self._most, len(queue))
                    taken = [queue.popleft() for _ in range(count)]
                    self._running += 1
                    return taken, sum(map(len, self._queues.values())), self._send
                self._changed.wait(wait)
        return None

    def _first_to_close(self) -> tuple[deque[Waiting] | None, float | None]:
        """The queue whose batch is closed next, and the seconds until then; None while nothing
        waits. A request that has waited long enough goes before full batches of other lengths."""
        waiting = [queue for queue in self._queues.values() if queue]
        if not waiting:
            return None, None
        oldest = min(waiting, key=lambda queue: queue[0].came)
        left = oldest[0].came + self._delay - time.monotonic_ns()
        if left <= 0:
            return oldest, 0.0
        full = next((queue for queue in waiting if len(queue) >= self._most), None)
        return (oldest, left / 1e9) if full is None else (full, 0.0)

    def _run(self, context: Context, taken: list[Waiting], left: int, send: Send) -> None:
        try:
            closed = time.monotonic_ns()
            indices = [one.asked.sample for one in taken]
            batch = context.assemble(indices)
            began = ran = time.monotonic_ns()
            for outputs in _outputs(context, batch):
                ran = time.monotonic_ns()
                found = context.answers(outputs, indices)
                numbers = (one.asked.number for one in taken)
                send(answers(zip(numbers, found, strict=True)))
                if self._send is not send:  # the run is over: nobody waits for the rest
                    break
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
        bucket = context.bucket([one.asked.sample for one in taken])
        self.batches.append(
            ServedBatch(
                closed=closed,
                size=len(taken),
                bucket=bucket.batch,
                left=left,
                waited=closed - taken[0].came,
                assembling=began - closed,
                running=ran - began,
                answering=done - ran,
                length=bucket.length,
                tokens=bucket.tokens,
            )
        )


def _outputs(context: Context, batch: Any) -> Iterator[Any]:
    """Yield the outputs of a batch: one by one if the context streams, otherwise all together."""
    if isinstance(context, Streaming):
        yield from context.stream(batch)
    else:
        yield context.run(batch)


def _nowhere(data: bytes) -> None:
    """Answers of a finished run are dropped."""


def _nothing() -> None:
    """There is no run to end."""
