"""The worker's side of a level that runs a written source: NumPy arrays in and out, no PyTorch."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from golow.levels.direct import bundle_arrays
from golow.levels.direct.bundle_arrays import STATE, Batch, Read
from golow.levels.direct.plan_program import Key, PlanProgram
from golow.levels.lowering import GRAPH
from golow.levels.traced.execution import SourceExecution
from golow.lower.ir.graph import Graph
from golow.lower.plan.plan import Step
from golow.records.errors import Unsupported
from golow.records.workload import Workload
from golow.worker.feed import Fed, Feed, augmented, normalised, padded
from golow.worker.marking import marked_arrays
from golow.worker.protocol import ArenaReport, LoadReport, Marks, ValuesReport
from golow.workload.bundle import Bundle


class SourceProgram(PlanProgram):
    """A workload run by another framework. folders: each with a source and its graph, the second
    for an epoch's smaller last batch."""

    level = ""
    execution: SourceExecution

    def __init__(self, *folders: Path) -> None:
        self._folders = folders

    def opened(self, folder: Path, graph: Graph, workload: Workload) -> SourceExecution:
        """Return what runs a program, without its weights."""
        raise NotImplementedError

    def load(self, bundle: Path) -> LoadReport:
        """Import the source, put the weights on the device and compile."""
        start = time.perf_counter()
        parts = self.begin(bundle, [folder / GRAPH for folder in self._folders])
        self._arrays = bundle_arrays.batches(self.bundle, self.workload.batches)
        self.execution = self._open(self._folders[0], *parts[0])
        self._batches = [self.execution.put_batch(batch) for batch in self._arrays]
        seconds = self.execution.compile(self._batches[0])
        for folder, (last, graph) in zip(self._folders[1:], parts[1:], strict=True):
            self.tail, self.tail_rows = self._open(folder, last, graph), last.workload.batch
            [batch] = bundle_arrays.batches(last, last.workload.batches)[:1]
            seconds += self.tail.compile(self.tail.put_batch(batch))
        self.reset()
        load = time.perf_counter() - start - seconds
        return LoadReport(phases={"build": seconds, "load": load})

    def allocated_peak(self) -> int | None:
        """Bytes that an iteration allocates besides its arguments and results, if the framework
        reports it."""
        return self.execution.temporary_bytes()

    # ------------------------------------------------------------ iterations

    def run_batch(self, index: int) -> None:
        """Run one iteration on the bundle's batch with that index."""
        self.execution.run(self._batches[index])

    def run_captured(self, index: int, wanted: Sequence[Key]) -> dict[Key, np.ndarray]:
        """Run the same with every result and return the wanted ones."""
        self.execution.run_captured(self._batches[index])
        state = (*STATE, "constant") if self.train else ()
        return {
            key: self.execution.read(key) if key[0] in state else self.execution.result(key)
            for key in wanted
        }

    def run_timed(self, index: int) -> list[tuple[Step, int]]:
        """The framework runs a whole step as one program."""
        raise Unsupported(self.level, "an iteration is one program, without layers")

    def arena(self) -> ArenaReport:
        """The framework plans its memory itself."""
        raise Unsupported(self.level, "it plans the memory of an iteration and does not report it")

    def values(
        self,
        batch: int,
        learning_rate: float,
        first: int,
        most: int,
        file: Path,
        hard: bool = False,
    ) -> ValuesReport:
        """There are no values between the operations of one program."""
        raise Unsupported(self.level, "an iteration is one program, without steps")

    def run_fed(self, execution: SourceExecution, fed: Fed, feed: Feed) -> None:
        """Run one iteration on a batch of a data set, normalised with NumPy."""
        rows = len(fed.labels) if self.train else self.workload.batch
        pictures = normalised(padded(augmented(fed), rows), feed.scale, feed.shift)
        batch: Batch = {("input", "0"): pictures}
        if self.train:
            batch["target", "0"] = fed.labels
        execution.run(execution.put_batch(batch))

    @contextmanager
    def marked(self, marks: Marks) -> Iterator[Callable[[int], None]]:
        """Write marks into the arrays of a batch, which then goes to the device again."""
        inputs = [_inputs(batch) for batch in self._arrays]
        with marked_arrays(inputs, marks, lambda: self._position) as write:

            def written(start: int) -> None:
                write(start)
                self._put_again(self._position % len(self._arrays))

            yield written
        for index in range(len(self._arrays)):
            self._put_again(index)

    def collect(self, key: Key, count: int) -> Collector:
        """Return what reads this result after each run."""
        return Collector(key)

    def result(self, key: Key) -> np.ndarray:
        """Return what the last iteration gave under that key."""
        return self.execution.result(key)

    # ------------------------------------------------------------ settings and weights

    def set_learning_rate(self, execution: SourceExecution, rate: float) -> None:
        """Set the learning rate of this execution's next iterations."""
        execution.set_rate(rate)

    def set_dropout(self, active: bool) -> None:
        """Switch random layers on or off."""
        self.execution.dropout = active

    def derive(self, read: Read) -> None:
        """Take other weights."""
        self.execution.load(read)

    def _open(self, folder: Path, bundle: Bundle, graph: Graph) -> SourceExecution:
        execution = self.opened(folder, graph, bundle.workload)
        with bundle_arrays.weights(bundle) as read:
            execution.load(read)
        return execution

    def _put_again(self, index: int) -> None:
        self._batches[index] = self.execution.put_batch(self._arrays[index])


class Collector:
    """Collects one result of several runs."""

    def __init__(self, key: Key) -> None:
        self._key = key
        self._arrays: list[np.ndarray] = []

    def take(self, execution: Any) -> None:
        """Read the result of this execution's last run."""
        self._arrays.append(execution.result(self._key))

    def arrays(self) -> list[np.ndarray]:
        """Return all results that were read."""
        return self._arrays


def _inputs(batch: Batch) -> list[np.ndarray]:
    """The batch's inputs, by position."""
    names = sorted((name for kind, name in batch if kind == "input"), key=int)
    return [batch["input", name] for name in names]
