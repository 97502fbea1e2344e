"""The oneDNN level's worker: runs a workload from the lowered graph in the level's cache.

``python -m golow.levels.direct.onednn.run.program FOLDER [LAST]`` speaks the worker protocol.
FOLDER has the lowered graph, LAST that of an epoch's smaller last batch. The worker chooses layouts
by measuring and saves them in FOLDER for the next start. It imports NumPy, safetensors, msgspec and
the binding, and no framework.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import msgspec
import numpy as np

from golow.levels.compiler import find_compiler
from golow.levels.direct import bundle_arrays
from golow.levels.direct.bundle_arrays import STATE, Batch, Read
from golow.levels.direct.onednn.bindings.library import Engine
from golow.levels.direct.onednn.planning import arranged, build_plan
from golow.levels.direct.onednn.run import tuning
from golow.levels.direct.onednn.run.execution import Execution
from golow.levels.direct.onednn.run.kernel_compilation import NO_KERNELS, Workshop
from golow.levels.direct.onednn.run.tuning import LAYOUTS_FILE
from golow.levels.direct.onednn.steps.built_plan import Built, Switches
from golow.levels.direct.plan_program import Key, PlanProgram
from golow.levels.direct.ranks.shared_mean import SharedMean, alone
from golow.levels.lowering import GRAPH
from golow.lower.ir.graph import Graph
from golow.lower.plan.plan import Step
from golow.storage.cache import write_sealed
from golow.worker.feed import Fed, Feed, augmented, normalised, padded
from golow.worker.marking import marked_arrays
from golow.worker.protocol import LoadReport, Marks
from golow.worker.serve import run
from golow.workload.bundle import Bundle


class OneDnn(PlanProgram):
    """A workload run by direct calls of oneDNN."""

    execution: Execution

    def __init__(self, *folders: Path) -> None:
        self._folder = folders[0]
        self._graphs = [folder / GRAPH for folder in folders]

    def load(self, bundle: Path) -> LoadReport:
        """Build the plan and load the bundle's weights. Do the same for the smaller last batch, in
        the same layouts."""
        start = time.perf_counter()
        parts = self.begin(bundle, self._graphs)
        self.switches = Switches(self.own_seed, alone)
        self.engine = Engine()
        self._batches = self._read_batches()
        notes: list[str] = []
        compiler = find_compiler()
        self.workshop = Workshop(compiler, self._folder.parent) if compiler else None
        building = time.perf_counter()
        layouts = self._layouts_of_all_ranks(notes)
        built = time.perf_counter()
        self._run_by(self._load_plan(layouts))
        self.require_fitting_ranks(self.execution)
        for last, graph in parts[1:]:
            self.tail, self.tail_rows = self._build(last, graph, layouts), last.workload.batch
            self.require_fitting_ranks(self.tail)
        self.reset()
        seconds = {
            "build": built - building,
            "load": time.perf_counter() - built + building - start,
        }
        if not layouts.clean:
            notes.append("layouts were chosen while other processes used the cores")
        notes += [NO_KERNELS] if self.workshop is None else self.workshop.notes
        return LoadReport(phases=seconds, notes=tuple(notes))

    def allocated_peak(self) -> int | None:
        """Bytes of the arena: what an iteration uses beyond weights and state."""
        return self.built.plan.sizes["arena"]

    @property
    def built(self) -> Built:
        """The plan of the workload's batch, and what executes it."""
        return self.execution.built

    # ------------------------------------------------------------ iterations

    def run_batch(self, index: int) -> None:
        """Run one iteration on the bundle's batch with that index."""
        self._pointing[index]()
        self.execution.run()

    @contextmanager
    def bare_call(self) -> Iterator[Callable[[], object]]:
        """The plan's steps on the first batch."""
        self._pointing[0]()
        yield self.execution.run

    def run_timed(self, index: int) -> list[tuple[Step, int]]:
        """Run the same step by step; return each step with its nanoseconds."""
        self._pointing[index]()
        steps = self.built.plan.steps
        return [(steps[position], spent) for position, spent in self.execution.run_timed()]

    def run_captured(self, index: int, wanted: Sequence[Key]) -> dict[Key, np.ndarray]:
        """Run the same and return the wanted results. Each is copied right after its step, because
        a later step may reuse its memory."""
        found: dict[Key, np.ndarray] = {}
        at_step: dict[int, list[Key]] = {}
        for key in wanted:
            if key[0] not in STATE:
                at_step.setdefault(self.built.outputs[key][1], []).append(key)

        def capture(position: int) -> None:
            for key in at_step.get(position, ()):
                found[key] = self.result(key)

        self._pointing[index]()
        self.execution.run_watched(capture)
        capture(-1)
        state = (key for key in wanted if key[0] in STATE)
        return found | {key: self.execution.read(self.built.inputs[key]) for key in state}

    def run_watched(self, index: int, watch: Callable[[int], None]) -> None:
        """Run the same; call ``watch`` with the position of each step after it."""
        self._pointing[index]()
        self.execution.run_watched(watch)

    def run_fed(self, execution: Execution, fed: Fed, feed: Feed) -> None:
        """Run one iteration on a batch of a data set, normalised with NumPy."""
        rows = len(fed.labels) if self.train else self.workload.batch
        pictures = normalised(padded(augmented(fed), rows), feed.scale, feed.shift)
        # Kept alive: the plan uses this memory and does not own it.
        self._fed: Batch = {("input", "0"): _align(pictures), ("target", "0"): fed.labels}
        execution.pointing(self._fed)()
        execution.run()

    def marked(self, marks: Marks) -> AbstractContextManager[Callable[[int], None]]:
        """Write marks into the arrays that the plan is pointed at."""
        inputs = [_inputs(batch) for batch in self._batches]
        return marked_arrays(inputs, marks, lambda: self._position)

    def collect(self, key: Key, count: int) -> Collector:
        """Return what reads this result after each run."""
        return Collector(key)

    def result(self, key: Key) -> np.ndarray:
        """Return what the last iteration wrote under that key."""
        if key not in self._readers:
            self._readers[key] = self.execution.reader(self.built.outputs[key][0])
        return self._readers[key]()

    # ------------------------------------------------------------ settings and weights

    def set_learning_rate(self, execution: Execution, rate: float) -> None:
        """Set the learning rate of this execution's next iterations."""
        tensor = execution.built.inputs.get(("learning_rate", ""))
        if tensor is not None:  # with its sign reversed: see optimizer_updates.py
            execution.write(tensor, np.array([-rate], np.float32))

    def set_dropout(self, active: bool) -> None:
        """Switch random layers on or off."""
        self.switches.dropout = active

    def derive(self, read: Read) -> None:
        """Load the plan again, which computes what depends on weights alone."""
        built = self.built
        # Its memory must be free before the new one is allocated.
        del self.execution, self._pointing, self._readers
        self._run_by(Execution(built, self.engine, read, self.workshop))

    def _run_by(self, execution: Execution) -> None:
        self.execution = execution
        self._pointing = [execution.pointing(batch) for batch in self._batches]
        self._readers: dict[Key, Callable[[], np.ndarray]] = {}

    def _load_plan(self, layouts: tuning.Layouts) -> Execution:
        """Return the plan in these layouts, with the weights, reading the first batch."""
        execution = self._build(self.bundle, self.graph, layouts)
        if self.train:
            with bundle_arrays.graph_weights(self.bundle) as read:
                self.fill(execution, read)
            self.set_learning_rate(execution, self.workload.optimizer.learning_rate)
        execution.pointing(self._batches[0])()
        return execution

    def _layouts_of_all_ranks(self, notes: list[str]) -> tuning.Layouts:
        """Return the layouts; rank 0 chooses for all. From here on the ranks average together."""
        if self.meeting is None:
            return self._layouts(notes)
        found = self.meeting.from_first(
            self.meeting.numbered("layouts"), lambda: msgspec.json.encode(self._layouts(notes))
        )
        self.switches.mean = SharedMean(self.meeting)
        return msgspec.json.decode(found, type=tuning.Layouts)

    def _layouts(self, notes: list[str]) -> tuning.Layouts:
        """Return the layouts that were chosen before, or choose them now."""
        layouts = tuning.read(self._folder / LAYOUTS_FILE, notes)
        if layouts is None:
            graph = arranged(self.graph, self.workshop is not None)
            layouts = tuning.choose(graph, self._load_plan)
            write_sealed(self._folder / LAYOUTS_FILE, msgspec.json.encode(layouts))
        return layouts

    def _build(self, bundle: Bundle, graph: Graph, layouts: tuning.Layouts) -> Execution:
        generates = self.workshop is not None
        built = build_plan(graph, self.engine, layouts.tag, self.switches, generates)
        with bundle_arrays.graph_weights(bundle) as read:
            return Execution(built, self.engine, read, self.workshop)

    def _read_batches(self) -> list[Batch]:
        found = bundle_arrays.batches(self.bundle, self.workload.batches)
        return [{key: _align(array) for key, array in batch.items()} for batch in found]


class Collector:
    """Collects one result of several runs."""

    def __init__(self, key: Key) -> None:
        self._key = key
        self._arrays: list[np.ndarray] = []

    def take(self, execution: Execution) -> None:
        """Read the result of this execution's last run."""
        self._arrays.append(execution.read(execution.built.outputs[self._key][0]))

    def arrays(self) -> list[np.ndarray]:
        """Return all results that were read."""
        return self._arrays


def _inputs(batch: Batch) -> list[np.ndarray]:
    """The batch's inputs, by position."""
    names = sorted((name for kind, name in batch if kind == "input"), key=int)
    return [batch["input", name] for name in names]


def _align(array: np.ndarray) -> np.ndarray:
    """Return a copy whose first byte is at the start of a cache line."""
    space = np.empty(array.nbytes + 64, np.uint8)
    start = -space.ctypes.data % 64
    copy = space[start : start + array.nbytes].view(array.dtype).reshape(array.shape)
    copy[...] = array
    return copy


if __name__ == "__main__":
    run(lambda: OneDnn(*map(Path, sys.argv[1:])))
