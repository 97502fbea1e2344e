"""The worker code that both direct levels share: it serves a workload from a lowered graph.

Nothing here imports a framework.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from safetensors.numpy import save_file

from golow.levels.choices.chooser import Chooser
from golow.levels.direct import bundle_arrays
from golow.levels.direct.arena import arena_report
from golow.levels.direct.bundle_arrays import STATE, Read
from golow.levels.direct.ranks.one_rank import OneRank
from golow.levels.direct.watched_values import write_values
from golow.lower.ir.graph import Graph, decode_graph
from golow.lower.plan.plan import Step
from golow.records.comparison import LayerTime
from golow.records.errors import GolowError
from golow.records.workload import Workload
from golow.worker.feed import Fed, Feed
from golow.worker.protocol import ArenaReport, Marks, ValuesReport
from golow.worker.results import weighted_sum
from golow.workload.bundle import Bundle

Key = tuple[str, str]  # kind and target of an input or output of the graph
WEIGHTS = ("parameter", "buffer")
SEEN = ("output", "loss", "gradient", "clip_factor")
"""Intermediate results of a training step, which are gone when it ends."""


class Collector(Protocol):
    """Collects the output of one key from several runs."""

    def take(self, execution: Any) -> None:
        """Keep the output of this execution's last run."""

    def arrays(self) -> list[np.ndarray]:
        """Return all that was kept, in PyTorch's order, after everything has run."""


class PlanProgram(OneRank, Chooser):
    """Runs a workload by a plan. Each level builds its plan and overrides what runs it.

    execution is the plan of the workload's batch, in memory. tail is the plan of the smaller batch
    that ends an epoch, if there is one; it has tail_rows rows. Each has its own state, and
    `_executing` moves the state to the plan that the next step needs.
    """

    bundle: Bundle
    workload: Workload
    graph: Graph
    execution: Any
    tail: Any = None
    tail_rows = 0

    _kept: list[float]
    _keys: list[Key]  # of the outputs
    _holder: Any = None  # the execution that has the current state
    _position = 0
    _restored = False

    # ------------------------------------------------------------ what a level overrides

    def run_batch(self, index: int) -> None:
        """Run or enqueue one iteration on the bundle's batch with that index."""
        raise NotImplementedError

    def run_timed(self, index: int) -> list[tuple[Step, int]]:
        """Run the same; return every step with its nanoseconds."""
        raise NotImplementedError

    def run_captured(self, index: int, wanted: Sequence[Key]) -> dict[Key, np.ndarray]:
        """Run the same and return the results under these keys."""
        raise NotImplementedError

    def run_watched(self, index: int, watch: Callable[[int], None]) -> None:
        """Run the same step by step; call ``watch`` with the position of each step after it."""
        raise NotImplementedError

    def run_fed(self, execution: Any, fed: Fed, feed: Feed) -> None:
        """Run one iteration on a batch of a data set. Its last row is repeated if the plan has more
        rows."""
        raise NotImplementedError

    def collect(self, key: Key, count: int) -> Collector:
        """Return what collects this result of ``count`` runs."""
        raise NotImplementedError

    def result(self, key: Key) -> np.ndarray:
        """Return what the last iteration wrote under that key."""
        raise NotImplementedError

    def derive(self, read: Read) -> None:
        """In inference, compute again what the plan derives from weights."""
        raise NotImplementedError

    def set_learning_rate(self, execution: Any, rate: float) -> None:
        """Set the learning rate of this execution's next iterations."""
        raise NotImplementedError

    def set_dropout(self, active: bool) -> None:
        """Switch random layers on or off."""
        raise NotImplementedError

    def state_changed(self) -> None:
        """Update what depends on the parameters, after they were written from outside."""

    def scaler(self) -> dict[str, np.ndarray]:
        """Return loss scale and good steps; empty if the loss is not scaled."""
        return {}

    def set_scaler(self, scaler: dict[str, np.ndarray]) -> None:
        """Continue with this loss scale; if it is empty, with the initial one."""

    # ------------------------------------------------------------ the protocol's requests

    def outputs(self, batches: list[int], learning_rate: float, file: Path) -> None:
        """Run the batches from the bundle's weights, without random layers; write the tensors."""
        self.reset()
        self.set_dropout(active=False)
        self.set_learning_rate(self.execution, learning_rate)
        tensors: dict[str, np.ndarray] = {}
        for step, index in enumerate(batches):
            wanted = self._select_keys(first=step == 0, last=step == len(batches) - 1)
            found = clipped(self.run_captured(self._check_index(index), wanted))
            tensors |= {f"{step}/{kind}/{target}": a for (kind, target), a in found.items()}
        save_file(tensors, file)
        self.reset()

    def values(
        self,
        batch: int,
        learning_rate: float,
        first: int,
        most: int,
        file: Path,
        hard: bool = False,
    ) -> ValuesReport:
        """Write the values of an iteration from the bundle's weights, without random layers."""
        self.reset(learning_rate)
        self.set_dropout(active=False)
        report = write_values(self, self._check_index(batch), first, most, file, hard)
        self.reset()
        return report

    def iterate(self) -> None:
        """Run one forward pass or training step on the next batch; on a GPU, enqueue it."""
        self.run_batch(self._next())

    def last(self) -> float:
        """Return the loss, or the first element of the first output."""
        return float(self.result(("loss", "loss") if self.train else ("output", "0")).flat[0])

    def marked(self, marks: Marks) -> AbstractContextManager[Callable[[int], None]]:
        """A function that writes values into the marked part of the next iteration's batch."""
        raise NotImplementedError

    def seek(self, iteration: int) -> None:
        """Let the next iteration be that one."""
        self._position = iteration

    def keep(self) -> None:
        """Keep the last loss, or the weighted sum of the last outputs."""
        if self.train:
            self._kept.append(self.last())
        else:
            self._kept.append(weighted_sum([self.result(key) for key in self._output_keys()]))

    def kept(self) -> list[float]:
        """Tensors kept since the last call."""
        kept, self._kept = self._kept, []
        return kept

    def write_result(self, file: Path) -> None:
        """Write the outputs of the last iteration; in training its loss, and the state."""
        state = self._state() if self.train else ()
        tensors = {f"{kind}/{target}": array for (kind, target), array in state}
        for kind, target in [("loss", "loss")] if self.train else self._output_keys():
            tensors[f"{kind}/{target}"] = self.result((kind, target))
        save_file(tensors, file)

    def layers(self, iterations: int) -> tuple[LayerTime, ...]:
        """Return the time of every step in each of ``iterations`` iterations."""
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

    def arena(self) -> ArenaReport:
        """Return the plan of an iteration's memory."""
        built = self.execution.built
        found = {key: _buffer(tensor) for key, tensor in built.inputs.items()}
        found |= {key: _buffer(tensor) for key, tensor in built.outputs.items()}
        return arena_report(built.plan, {index: key for key, index in found.items()})

    def epoch(self, feed: Feed, rates: Sequence[float]) -> list[float]:
        """Train on each batch of the feed with its own learning rate; return the losses."""
        return [float(loss.flat[0]) for loss in self._over(feed, ("loss", "loss"), rates)]

    def predict(self, feed: Feed) -> np.ndarray:
        """Return the first output for every row of the feed, float32 [rows, ...]."""
        arrays = self._over(feed, ("output", "0"))
        rows = [array[:size] for array, size in zip(arrays, feed.sizes, strict=True)]
        return np.concatenate(rows).astype(np.float32, copy=False)

    def save(self, file: Path) -> None:
        """Write parameters, buffers and what the optimizer keeps; of that, what is all zero is left
        out."""
        state = {
            f"{kind}/{target}": array
            for (kind, target), array in self._state()
            if kind in WEIGHTS or array.any()
        }
        save_file(state | self.scaler(), file)

    def restore(self, file: Path) -> None:
        """Continue from what `save` wrote. Raises `GolowError` for the state of another model,
        before anything changes."""
        with bundle_arrays.saved_state(file, self.bundle, self.graph.inputs) as (read, scaler):
            self._take(read, STATE)
            self.set_scaler(scaler)
        self._restored = True

    # ------------------------------------------------------------ implementation

    def begin(self, bundle: Path, graphs: Sequence[Path]) -> list[tuple[Bundle, Graph]]:
        """Open a bundle with these files as its lowered graphs. Return the bundle and, in training,
        the bundle of the smaller last batch if there is one, each with its graph."""
        self.bundle = Bundle(bundle)
        self.workload = self.bundle.workload
        self.join()
        self.tail, self._holder, self._restored = None, None, False
        self._kept, self._keys = [], []
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
        """True if an iteration is a training step."""
        return self.workload.mode == "train"

    def reset(self, learning_rate: float | None = None) -> None:
        """Return to the bundle's weights and an optimizer that has made no step, with random layers
        on. Training then uses this learning rate, by default the workload's own."""
        self._position = 0
        if self.train or self._restored:
            with bundle_arrays.graph_weights(self.bundle) as read:
                self._take(read, WEIGHTS)
        self._restored = False
        if self.train:
            self.set_scaler({})
            self.set_dropout(active=True)
            own = self.workload.optimizer.learning_rate
            self.set_learning_rate(self.execution, own if learning_rate is None else learning_rate)

    def _kept_kinds(self) -> tuple[str, ...]:
        return (*self.workload.optimizer.keeps, "steps")

    def _output_keys(self) -> list[Key]:
        """The outputs' keys, in their order."""
        if not self._keys:
            keys = (key for key in self.execution.built.outputs if key[0] == "output")
            self._keys = sorted(keys, key=lambda key: int(key[1]))
        return self._keys

    def _next(self) -> int:
        index = self._position % self.workload.batches
        self._position += 1
        return index

    def _check_index(self, index: int) -> int:
        if not 0 <= index < self.workload.batches:
            raise GolowError(f"there is no batch {index}; the bundle has {self.workload.batches}")
        return index

    def _select_keys(self, first: bool, last: bool) -> list[Key]:
        """Return the keys that the check needs of a step."""
        kinds = {"output", "loss", "buffer"}
        kinds |= {"gradient", "clip_factor"} if first else set()
        kinds |= {"parameter", *self._kept_kinds()} if last else set()
        return [key for key in self.execution.built.outputs if key[0] in kinds]

    def fill(self, execution: Any, read: Read, kinds: tuple[str, ...] = WEIGHTS) -> None:
        """Write the state of an execution that trains: these kinds from ``read``; what the
        optimizer keeps is zero."""
        execution.forget()
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

    def _state(self) -> Iterator[tuple[Key, np.ndarray]]:
        inputs, kept = self.execution.built.inputs, self._kept_kinds()
        keys = dict.fromkeys(((i.kind, i.target) for i in self.graph.inputs), None) | inputs
        with bundle_arrays.weights(self.bundle) as read:
            for kind, target in (key for key in keys if key[0] in STATE):
                tensor = inputs.get((kind, target))
                # A value that no step changes may be a constant of the plan.
                array = read(kind, target) if tensor is None else self.execution.read(tensor)
                if kind in WEIGHTS or kind in kept:
                    yield (kind, target), array

    def _over(self, feed: Feed, key: Key, rates: Sequence[float] = ()) -> list[np.ndarray]:
        """Run every batch of the feed; return what each run wrote under the key."""
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
        """Return the plan for a batch of that many rows, holding the current state."""
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
            raise GolowError("a data set has one float32 input, and the model takes others")
        if (wanted := inputs[0].shape[1:]) != fed.pixels.shape[1:]:
            raise GolowError(
                f"the data set's images are {list(fed.pixels.shape[1:])}, "
                f"the workload's {list(wanted)}"
            )


def clipped(found: dict[Key, np.ndarray]) -> dict[Key, np.ndarray]:
    """Results with the gradients as PyTorch has them after clipping: the plan's updates multiply
    by the factor, which is not a result of the step."""
    factor = found.pop(("clip_factor", ""), None)
    if factor is None:
        return found
    return {
        key: array * factor.reshape(()) if key[0] == "gradient" else array
        for key, array in found.items()
    }


def _buffer(held: Any) -> int:
    """The buffer of a graph's input or output; oneDNN's outputs are pairs with a step."""
    return int(held.buffer if hasattr(held, "buffer") else held[0].buffer)
