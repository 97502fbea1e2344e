"""What the two levels that run a plan share in the worker: a workload served from a lowered graph.

Nothing here imports a framework.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from safetensors.numpy import save_file

from golow.levels.vendor import bundle_arrays
from golow.levels.vendor.bundle_arrays import STATE, Read
from golow.lower.graph import Graph, decode_graph
from golow.lower.plan import Step
from golow.record import GolowError, LayerTime, Workload
from golow.worker.feed import Fed, Feed
from golow.workload.bundle import Bundle

Key = tuple[str, str]  # of what enters and leaves the graph: its kind, and its target
WEIGHTS = ("parameter", "buffer")


class Collector(Protocol):
    """What stood under one key after each of several runs."""

    def take(self, execution: Any) -> None:
        """Keep what this execution's last run gave."""

    def arrays(self) -> list[np.ndarray]:
        """All that was kept, in PyTorch's order, once everything has run."""


class PlanProgram:
    """A workload run by a plan; a level builds the plan and overrides what runs it.

    execution is the plan of the workload's batch, in memory. tail is that of the smaller batch, of
    so many rows, with which an epoch ends, where there is one. Each has a state of its own, and
    `_executing` moves it to where the next step needs it.
    """

    bundle: Bundle
    workload: Workload
    graph: Graph
    execution: Any
    tail: Any = None
    tail_rows = 0

    _holder: Any = None  # the execution that has the state
    _position = 0
    _restored = False

    # ------------------------------------------------------------ what a level overrides

    def run_batch(self, index: int) -> None:
        """One iteration on the bundle's batch of that number, or its enqueuing."""
        raise NotImplementedError

    def run_timed(self, index: int) -> list[tuple[Step, int]]:
        """The same, and the nanoseconds of every step."""
        raise NotImplementedError

    def run_captured(self, index: int, wanted: Sequence[Key]) -> dict[Key, np.ndarray]:
        """The same, and what then stands under these keys."""
        raise NotImplementedError

    def run_fed(self, execution: Any, fed: Fed, feed: Feed) -> None:
        """One iteration on a batch of a data set, whose last row fills a plan for more rows."""
        raise NotImplementedError

    def collect(self, key: Key, count: int) -> Collector:
        """What keeps this of so many runs."""
        raise NotImplementedError

    def result(self, key: Key) -> np.ndarray:
        """What the last iteration left under that key."""
        raise NotImplementedError

    def derive(self, read: Read) -> None:
        """Compute anew, in inference, whatever the plan derives of weights."""
        raise NotImplementedError

    def set_learning_rate(self, execution: Any, rate: float) -> None:
        """Of its next iterations."""
        raise NotImplementedError

    def set_dropout(self, active: bool) -> None:
        """Whether random layers are on."""
        raise NotImplementedError

    def state_changed(self) -> None:
        """Parameters were written from outside: follow, where more depends on them."""

    def scaler(self) -> dict[str, np.ndarray]:
        """Loss scale and good steps, where the loss is scaled."""
        return {}

    def set_scaler(self, scaler: dict[str, np.ndarray]) -> None:
        """Go on with this loss scale; with that of the start where nothing is given."""

    # ------------------------------------------------------------ the protocol's requests

    def outputs(self, batches: list[int], learning_rate: float, file: Path) -> None:
        """Run the batches from the bundle's weights, random layers off; write the tensors."""
        self.reset()
        self.set_dropout(active=False)
        self.set_learning_rate(self.execution, learning_rate)
        tensors: dict[str, np.ndarray] = {}
        for step, index in enumerate(batches):
            wanted = self._select_keys(first=step == 0, last=step == len(batches) - 1)
            found = self.run_captured(self._check_index(index), wanted)
            tensors |= {f"{step}/{kind}/{target}": found[kind, target] for kind, target in wanted}
        save_file(tensors, file)
        self.reset()

    def iterate(self) -> None:
        """One forward pass or training step on the next batch; on a GPU it is enqueued."""
        self.run_batch(self._next())

    def last(self) -> float:
        """The loss, or the first element of the first output."""
        return float(self.result(("loss", "loss") if self.train else ("output", "0")).flat[0])

    def layers(self, iterations: int) -> tuple[LayerTime, ...]:
        """Every step's time in each of so many iterations."""
        samples = [self.run_timed(self._next()) for _ in range(iterations)]
        return tuple(
            LayerTime(
                modules=step.modules,
                phase=step.phase,
                operation=step.operation,
                ns=tuple(sample[index][1] for sample in samples),
            )
            for index, (step, _) in enumerate(samples[0])
        )

    def epoch(self, feed: Feed, rates: Sequence[float]) -> list[float]:
        """Train on each batch of the feed with its own learning rate; the losses."""
        return [float(loss.flat[0]) for loss in self._over(feed, ("loss", "loss"), rates)]

    def predict(self, feed: Feed) -> np.ndarray:
        """The first output for every row of the feed, float32 [rows, ...]."""
        arrays = self._over(feed, ("output", "0"))
        rows = [array[:size] for array, size in zip(arrays, feed.sizes, strict=True)]
        return np.concatenate(rows).astype(np.float32, copy=False)

    def save(self, file: Path) -> None:
        """Write parameters, buffers and momentum; a momentum of zeros is none."""
        save_file(dict(self._state()) | self.scaler(), file)

    def restore(self, file: Path) -> None:
        """Go on from what `save` wrote. Raises `GolowError` for the state of another model, before
        anything has changed."""
        with bundle_arrays.saved_state(file, self.bundle, self.graph.inputs) as (read, scaler):
            self._take(read, STATE)
            self.set_scaler(scaler)
        self._restored = True

    # ------------------------------------------------------------ how it is done

    def begin(self, bundle: Path, graphs: Sequence[Path]) -> list[tuple[Bundle, Graph]]:
        """Take up a bundle, of which these files are the lowered graphs. Returns the bundle and, in
        training, that of the smaller last batch where there is one, each with its graph."""
        self.bundle = Bundle(bundle)
        self.workload = self.bundle.workload
        self.tail, self._holder, self._restored = None, None, False
        last = self.bundle.last if self.train else None
        bundles = [self.bundle] if last is None else [self.bundle, last]
        found = [
            (part, decode_graph(file.read_bytes()))
            for part, file in zip(bundles, graphs, strict=False)
        ]
        self.graph = found[0][1]
        return found

    @property
    def train(self) -> bool:
        """Whether an iteration is a training step."""
        return self.workload.mode == "train"

    def reset(self) -> None:
        """Back to the bundle's weights and to zero momentum, with random layers on."""
        self._position = 0
        if self.train or self._restored:
            with bundle_arrays.weights(self.bundle) as read:
                self._take(read, WEIGHTS)
        self._restored = False
        if self.train:
            self.set_scaler({})
            self.set_dropout(active=True)
            self.set_learning_rate(self.execution, self.workload.optimizer.learning_rate)

    def _next(self) -> int:
        index = self._position % self.workload.batches
        self._position += 1
        return index

    def _check_index(self, index: int) -> int:
        if not 0 <= index < self.workload.batches:
            raise GolowError(f"there is no batch {index}, the bundle has {self.workload.batches}")
        return index

    def _select_keys(self, first: bool, last: bool) -> list[Key]:
        """What the check wants of a step."""
        kinds = {"output", "loss", "buffer"}
        kinds |= {"gradient"} if first else set()
        kinds |= {"parameter"} if last else set()
        kinds |= {"momentum"} if last and self.workload.optimizer.momentum else set()
        return [key for key in self.execution.built.outputs if key[0] in kinds]

    def fill(self, execution: Any, read: Read, kinds: tuple[str, ...] = WEIGHTS) -> None:
        """Give an execution that trains its state: of these kinds what is read, else zeros."""
        execution.clear_momentum()
        for (kind, target), tensor in execution.built.inputs.items():
            if kind in kinds:
                execution.write(tensor, read(kind, target))

    def _take(self, read: Read, kinds: tuple[str, ...]) -> None:
        if not self.train:
            self.derive(read)
            return
        self._holder = self.execution
        self.fill(self.execution, read, kinds)
        self.state_changed()

    def _state(self) -> Iterator[tuple[str, np.ndarray]]:
        inputs, momentum = self.execution.built.inputs, self.workload.optimizer.momentum
        with bundle_arrays.weights(self.bundle) as read:
            for kind, target in ((i.kind, i.target) for i in self.graph.inputs if i.kind in STATE):
                tensor = inputs.get((kind, target))
                # What no step changes may be a constant of the plan.
                array = read(kind, target) if tensor is None else self.execution.read(tensor)
                if kind in WEIGHTS or (momentum and array.any()):
                    yield f"{kind}/{target}", array

    def _over(self, feed: Feed, key: Key, rates: Sequence[float] = ()) -> list[np.ndarray]:
        """Run every batch of the feed; what then stood under the key."""
        collector = self.collect(key, len(feed.sizes))
        for step, fed in enumerate(feed):
            self._require_fitting(fed)
            execution = self._executing(len(fed.labels))
            if rates:
                self.set_learning_rate(execution, rates[step])
            self.run_fed(execution, fed, feed)
            collector.take(execution)
        self._executing(self.workload.batch)
        return collector.arrays()

    def _executing(self, rows: int) -> Any:
        """The plan for a batch of so many rows, with the state in it."""
        if not self.train or rows == self.workload.batch:
            wanted = self.execution
        elif self.tail is not None and rows == self.tail_rows:
            wanted = self.tail
        else:
            raise GolowError(f"there is no plan for a batch of {rows} rows in the bundle's last/")
        if self.train and wanted is not self._holder:
            wanted.take_state(self._holder)
            self._holder = wanted
        return wanted

    def _require_fitting(self, fed: Fed) -> None:
        inputs = self.workload.inputs
        if len(inputs) != 1 or inputs[0].dtype != "float32":
            raise GolowError("a data set has one input a row, and the model takes others")
        if (wanted := inputs[0].shape[1:]) != fed.pixels.shape[1:]:
            raise GolowError(
                f"the data set's pictures are {list(fed.pixels.shape[1:])}, "
                f"the workload's {list(wanted)}"
            )
