"""The worker's side: a workload run by oneDNN, from the lowered graph in the level's cache.

``python -m golow.levels.vendor.onednn.program FOLDER [LAST]`` speaks the worker protocol, for the
lowered graph in that folder, and for that of an epoch's smaller last batch in the other; the
layouts that it chooses by measuring stay in the first for the next start. It imports NumPy,
safetensors, msgspec and the binding, and no framework.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from pathlib import Path

import msgspec
import numpy as np

from golow.files import write_whole
from golow.levels.vendor import bundle_arrays
from golow.levels.vendor.bundle_arrays import STATE, Batch, Read
from golow.levels.vendor.onednn import GRAPH, LAYOUTS, tuning
from golow.levels.vendor.onednn.execution import Execution
from golow.levels.vendor.onednn.library import Engine
from golow.levels.vendor.onednn.planning import build_plan
from golow.levels.vendor.onednn.steps import Built, Switches
from golow.levels.vendor.plan_program import Key, PlanProgram
from golow.lower.graph import Graph
from golow.lower.plan import Step
from golow.worker.feed import Fed, Feed, augmented, normalised, padded
from golow.worker.protocol import LoadReport
from golow.worker.serve import run
from golow.workload.bundle import Bundle


class OneDnn(PlanProgram):
    """A workload run by direct calls of oneDNN."""

    execution: Execution

    def __init__(self, *folders: Path) -> None:
        self._folder = folders[0]
        self._graphs = [folder / GRAPH for folder in folders]

    def load(self, bundle: Path) -> LoadReport:
        """Build the plan, give it the bundle's weights; so that of the smaller last batch, in the
        same layouts."""
        start = time.perf_counter()
        parts = self.begin(bundle, self._graphs)
        self.switches = Switches(self.workload.seed)
        self.engine = Engine()
        self._batches = self._read_batches()
        layouts = tuning.read(self._folder / LAYOUTS)
        building = time.perf_counter()
        if layouts is None:
            layouts = tuning.choose(self.graph, self._load_plan)
            write_whole(self._folder / LAYOUTS, msgspec.json.encode(layouts))
        built = time.perf_counter()
        self.execution = self._load_plan(layouts)
        for last, graph in parts[1:]:
            self.tail, self.tail_rows = self._build(last, graph, layouts), last.workload.batch
        self.reset()
        seconds = {
            "build": built - building,
            "load": time.perf_counter() - built + building - start,
        }
        busy = "layouts were chosen while other processes used the cores"
        return LoadReport(phases=seconds, notes=() if layouts.clean else (busy,))

    def allocated_peak(self) -> int | None:
        """Bytes of the arena: all that an iteration uses beyond weights and state."""
        return self.built.plan.sizes["arena"]

    @property
    def built(self) -> Built:
        """The plan of the workload's batch, and what executes it."""
        return self.execution.built

    # ------------------------------------------------------------ iterations

    def run_batch(self, index: int) -> None:
        """One iteration on the bundle's batch of that number."""
        _point(self.execution, self._batches[index])
        self.execution.run()

    def run_timed(self, index: int) -> list[tuple[Step, int]]:
        """The same, clocked step by step."""
        _point(self.execution, self._batches[index])
        steps = self.built.plan.steps
        return [(steps[position], spent) for position, spent in self.execution.run_timed()]

    def run_captured(self, index: int, wanted: Sequence[Key]) -> dict[Key, np.ndarray]:
        """The same; what is wanted of it, taken when it was made, because its memory may hold
        something else a step later."""
        found: dict[Key, np.ndarray] = {}
        at_step: dict[int, list[Key]] = {}
        for key in wanted:
            if key[0] not in STATE:
                at_step.setdefault(self.built.outputs[key][1], []).append(key)

        def capture(position: int) -> None:
            for key in at_step.get(position, ()):
                found[key] = self.result(key)

        _point(self.execution, self._batches[index])
        self.execution.run_watched(capture)
        capture(-1)
        state = (key for key in wanted if key[0] in STATE)
        return found | {key: self.execution.read(self.built.inputs[key]) for key in state}

    def run_fed(self, execution: Execution, fed: Fed, feed: Feed) -> None:
        """One iteration on a batch of a data set, normalised by NumPy."""
        rows = len(fed.labels) if self.train else self.workload.batch
        pictures = normalised(padded(augmented(fed), rows), feed.scale, feed.shift)
        # Kept: the plan is pointed at this memory and does not own it.
        self._fed: Batch = {("input", "0"): _align(pictures), ("target", "0"): fed.labels}
        _point(execution, self._fed)
        execution.run()

    def collect(self, key: Key, count: int) -> Collector:
        """What reads this after each run."""
        return Collector(key)

    def result(self, key: Key) -> np.ndarray:
        """What the last iteration left under that key."""
        return self.execution.read(self.built.outputs[key][0])

    # ------------------------------------------------------------ settings and weights

    def set_learning_rate(self, execution: Execution, rate: float) -> None:
        """Of its next iterations."""
        tensor = execution.built.inputs.get(("learning_rate", ""))
        if tensor is not None:  # with its sign turned: see operators/sgd_update.py
            execution.write(tensor, np.array([-rate], np.float32))

    def set_dropout(self, active: bool) -> None:
        """Whether random layers are on."""
        self.switches.dropout = active

    def derive(self, read: Read) -> None:
        """Load the plan anew, which computes what depends on weights alone."""
        built = self.built
        del self.execution  # its memory goes before the new one's comes
        self.execution = Execution(built, self.engine, read)

    def _load_plan(self, layouts: tuning.Layouts) -> Execution:
        """The plan in these layouts, with the weights, pointed at the first batch."""
        execution = self._build(self.bundle, self.graph, layouts)
        if self.train:
            with bundle_arrays.weights(self.bundle) as read:
                self.fill(execution, read)
            self.set_learning_rate(execution, self.workload.optimizer.learning_rate)
        _point(execution, self._batches[0])
        return execution

    def _build(self, bundle: Bundle, graph: Graph, layouts: tuning.Layouts) -> Execution:
        built = build_plan(graph, self.engine, layouts.tag, self.switches)
        with bundle_arrays.weights(bundle) as read:
            return Execution(built, self.engine, read)

    def _read_batches(self) -> list[Batch]:
        found = bundle_arrays.batches(self.bundle, self.workload.batches)
        return [{key: _align(array) for key, array in batch.items()} for batch in found]


class Collector:
    """What is read after each of several runs."""

    def __init__(self, key: Key) -> None:
        self._key = key
        self._arrays: list[np.ndarray] = []

    def take(self, execution: Execution) -> None:
        """Read what this execution's last run gave."""
        self._arrays.append(execution.read(execution.built.outputs[self._key][0]))

    def arrays(self) -> list[np.ndarray]:
        """All that was read."""
        return self._arrays


def _point(execution: Execution, batch: Batch) -> None:
    for (kind, target), array in batch.items():
        execution.point_input(kind, target, array)


def _align(array: np.ndarray) -> np.ndarray:
    """A copy whose first byte starts a cache line."""
    space = np.empty(array.nbytes + 64, np.uint8)
    start = -space.ctypes.data % 64
    copy = space[start : start + array.nbytes].view(array.dtype).reshape(array.shape)
    copy[...] = array
    return copy


if __name__ == "__main__":
    run(lambda: OneDnn(*map(Path, sys.argv[1:])))
