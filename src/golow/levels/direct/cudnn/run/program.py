"""The cuDNN level's worker: runs a workload by cuDNN, cuBLASLt and golow's own kernels, from the
lowered graph in the level's cache.

``python -m golow.levels.direct.cudnn.run.program [autotune] FOLDER [LAST]`` speaks the worker
protocol. FOLDER has the lowered graph, LAST that of an epoch's smaller last batch. The worker
imports NumPy, ml_dtypes, safetensors, msgspec and NVIDIA's bindings, and no framework.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import numpy as np

from golow.levels.direct import bundle_arrays
from golow.levels.direct.bundle_arrays import Read
from golow.levels.direct.cudnn.bindings.device import Gpu
from golow.levels.direct.cudnn.bindings.nccl import Communicator
from golow.levels.direct.cudnn.engines.engines import Engines
from golow.levels.direct.cudnn.planning import build_plan
from golow.levels.direct.cudnn.problems.precision import TYPES, Types
from golow.levels.direct.cudnn.run.committed_results import (
    Aside,
    Losses,
    WeightedSums,
    weighing_kernels,
)
from golow.levels.direct.cudnn.run.engine_refinement import refine
from golow.levels.direct.cudnn.run.execution import Execution
from golow.levels.direct.cudnn.run.feeding import Collector, Intake
from golow.levels.direct.cudnn.shared_kernels.augment_images import normalise
from golow.levels.direct.cudnn.shared_kernels.dropout import CONTROL
from golow.levels.direct.cudnn.shared_kernels.loss_scale import SCALER
from golow.levels.direct.cudnn.steps.built_plan import LOSS_SCALE
from golow.levels.direct.plan_program import Key, PlanProgram
from golow.levels.lowering import GRAPH
from golow.levels.nvidia.memory import Region
from golow.levels.nvidia.stream import Stopwatch
from golow.lower.ir.graph import Graph
from golow.lower.plan.plan import Step
from golow.records.errors import GolowError, Unsupported
from golow.worker.feed import Fed, Feed
from golow.worker.loss_scale import FIRST_SCALE, settle_loss_scale
from golow.worker.marking import marked_span, values_of
from golow.worker.protocol import LoadReport, Marks
from golow.worker.serve import run
from golow.workload.bundle import Bundle


class CuDnn(PlanProgram):
    """A workload run by direct calls of NVIDIA's libraries. stack_bytes: see `Gpu`."""

    execution: Execution
    stack_bytes = 0
    _ranks: Communicator | None = None

    def __init__(self, *folders: Path, autotune: bool = False) -> None:
        self._home, self._autotune = folders[0].parent, autotune
        self._graphs = [folder / GRAPH for folder in folders]

    def load(self, bundle: Path) -> LoadReport:
        """Build the plan, load the bundle's weights and capture the CUDA graph. Do the same for the
        smaller last batch, with the engines that the libraries suggest first."""
        start = time.perf_counter()
        (_, graph), *tails = self.begin(bundle, self._graphs)
        rank = 0 if self.meeting is None else self.meeting.rank
        self.gpu = Gpu(self._home / "kernels", self.stack_bytes, ordinal=rank)
        self._intakes: dict[Execution, Intake] = {}
        self._fed = False  # whether batches of a data set are stored where the bundle's were
        self._aside: Aside | None = None
        self._loss_scale = FIRST_SCALE if self._types.scaled else 1.0
        building = time.perf_counter()
        engines = Engines(self.gpu, self._home / "engines", self._autotune)
        if self.meeting is not None and self._ranks is None:  # at the first load
            self._ranks = Communicator(self.meeting, self.gpu)
        self.execution = self._load_plan(self.bundle, graph, engines)
        self.reset()
        self.iterate()  # compiles what is left and captures the graph
        if self._ranks is not None:
            self._ranks.wait(self.gpu)  # no longer than its time limit
        if self._autotune and not self.train and refine(self.execution, engines):
            del self.execution  # there may be no room for both
            self.execution = self._load_plan(self.bundle, graph, engines)
            self.reset()
            self.iterate()
        found, notes = engines.built, engines.notes
        for last, smaller in tails:
            engines = Engines(self.gpu, self._home / "engines", autotune=False)
            self.tail, self.tail_rows = self._load_plan(last, smaller, engines), last.workload.batch
            self._warm_up_tail()
            found += engines.built
            notes += engines.notes
        self.gpu.compile([normalise(1, 1, 1, 1)])  # the code does not depend on the sizes
        if not self.train:
            self.gpu.compile(weighing_kernels(self.execution))
        self.gpu.synchronize()
        built_in = time.perf_counter() - building
        self.reset()
        if self._types.scaled and self.train:
            self._loss_scale = self._settle_scale()
            self.reset()
        # If every engine came from the cache, all the time counts as loading.
        build = built_in if found else 0.0
        phases = {"build": build, "load": time.perf_counter() - start - build}
        notes += self.gpu.notes
        return LoadReport(phases=phases, notes=tuple(dict.fromkeys(notes)))

    def allocated_peak(self) -> int | None:
        """Bytes of the arena and the gradients: what an iteration uses beyond its lasting state."""
        return self.execution.working_bytes

    def stopwatch(self, iterations: int) -> Stopwatch:
        """Return a stopwatch for that many iterations on the device."""
        return self.gpu.stopwatch(iterations)

    def meet(self) -> None:
        """Wait until every rank is here and its GPU has finished."""
        self.gpu.synchronize()
        super().meet()

    # ------------------------------------------------------------ iterations

    def run_batch(self, index: int) -> None:
        """Enqueue one iteration on the bundle's batch with that index."""
        self._put_back()
        self.execution.run(index)

    def run_timed(self, index: int) -> list[tuple[Step, int]]:
        """Run the same step by step; return each step with its nanoseconds by the GPU's clock."""
        self._put_back()
        return self.execution.run_timed(index)

    def profile(self, iterations: int, file: Path) -> None:
        """Write the trace of that many iterations. Unsupported without CUPTI's bindings."""
        try:
            from golow.levels.direct.cudnn.run.profiling import write_trace
        except ImportError as error:
            raise Unsupported("", f"cupti-python is not installed: {error}") from error
        self._put_back()
        self.gpu.synchronize()
        write_trace(self, iterations, file)

    def run_marked(self, marked: Callable[[int], AbstractContextManager[None]]) -> None:
        """Enqueue one iteration step by step, each in the context of its position in the plan."""
        self.execution.run_marked(self._next(), marked)

    def run_captured(self, index: int, wanted: Sequence[Key]) -> dict[Key, np.ndarray]:
        """Run the same and return the wanted results. Gradients share memory with what follows
        them: where they are wanted, the plan runs step by step."""
        gradients = [key for key in wanted if key[0] == "gradient"]
        if gradients:
            self._put_back()
            tensors = {key: self.execution.built.outputs[key] for key in wanted}
            found = self.execution.run_observed(index, tensors)
        else:
            self.run_batch(index)
            found = {key: self.result(key) for key in wanted}
        for key in gradients:
            found[key] /= self._loss_scale
        return found

    def run_watched(self, index: int, watch: Callable[[int], None]) -> None:
        """Run the same step by step; call ``watch`` with the position of each step after it was
        enqueued."""
        self._put_back()
        self.execution.run_watched(index, watch)

    def run_fed(self, execution: Execution, fed: Fed, feed: Feed) -> None:
        """Enqueue one iteration on a batch of a data set."""
        if not self._intakes:
            plans = (self.execution, self.tail)
            self._intakes = {plan: Intake(plan) for plan in plans if plan is not None}
        self._fed = True
        self._intakes[execution].run(fed, feed)

    @contextmanager
    def marked(self, marks: Marks) -> Iterator[Callable[[int], None]]:
        """A function that enqueues the copying of values into the marked part of the next
        iteration's batch. What was there is kept on the device and put back at the end: another
        upload of the batches may take longer than a block of them."""
        tensor = self.execution.built.inputs["input", str(marks.input)]
        size = np.dtype(tensor.dtype).itemsize
        if size % 4:
            raise GolowError(f"input {marks.input} is {tensor.dtype}, which golow does not mark")
        rows, batches = self.workload.batch, self.workload.batches
        pitch = tensor.layout.bytes(tensor.shape) // batches // rows
        part = marked_span(marks, pitch // size)
        width = size * marks.length
        self._put_back()
        parts = [self.execution.place(tensor, n) + size * part.start for n in range(batches)]
        kept = [Region(rows * width) for _ in parts]
        for first, region in zip(parts, kept, strict=True):
            self.gpu.copy_columns(region.address, width, first, pitch, width, rows)

        values = values_of(marks, rows).astype(tensor.dtype)
        row = Region(values.nbytes)
        self.gpu.upload(row.address, values)

        def write(start: int) -> None:
            first = parts[self._position % batches]
            self.gpu.copy_columns(first, pitch, row.address + size * start, width, width, rows)

        try:
            yield write
        finally:
            for first, region in zip(parts, kept, strict=True):
                self.gpu.copy_columns(first, pitch, region.address, width, width, rows)
            self.gpu.synchronize()  # before the memory is given back

    def last(self) -> float:
        """Return the loss, or the first element of the first output."""
        key = ("loss", "loss") if self.train else ("output", "0")
        return self.execution.first(self.execution.built.outputs[key])

    def keep(self) -> None:
        """Keep the last loss, or the weighted sum of the last outputs, on the device."""
        if self._aside is None:
            self._aside = Aside((Losses if self.train else WeightedSums)(self.execution))
        self._aside.take()

    def kept(self) -> list[float]:
        """Tensors kept since the last call."""
        aside, self._aside = self._aside, None  # its memory is not the level's
        return aside.empty() if aside is not None else []

    def collect(self, key: Key, count: int) -> Collector:
        """Return what collects this result of ``count`` runs, on the device."""
        return Collector(self.execution, key, count)

    def result(self, key: Key) -> np.ndarray:
        """Return what the last iteration wrote under that key."""
        return self.execution.read(self.execution.built.outputs[key])

    def _put_back(self) -> None:
        if self._fed:
            self.execution.take_batches(bundle_arrays.batches(self.bundle, self.workload.batches))
        self._fed = False

    # ------------------------------------------------------------ settings and weights

    def set_learning_rate(self, execution: Execution, rate: float) -> None:
        """Enqueue the learning rate of this execution's next iterations."""
        tensor = execution.built.inputs.get(("learning_rate", ""))
        if tensor is not None:
            execution.write_float(tensor, rate)

    def set_dropout(self, active: bool) -> None:
        """Switch random layers on or off, and restart their random numbers."""
        for cell in self.execution.built.cells:
            if cell.kind == "dropout":
                probability = cell.probability if active else 0.0
                content = np.array((self.own_seed, 0, probability), CONTROL)
                self.execution.write_cell(cell, content)

    def derive(self, read: Read) -> None:
        """Write all weights again, where the captured graph reads them."""
        self.execution.fill(read)

    def state_changed(self) -> None:
        """Refresh the parameters' copies in half precision."""
        self.execution.renew_copies()

    def scaler(self) -> dict[str, np.ndarray]:
        """Return loss scale and good steps; empty without loss scaling."""
        if LOSS_SCALE not in self.execution.built.cells:
            return {}
        cell = self.execution.read_cell(LOSS_SCALE, SCALER)
        return {f"scaler/{part}": np.array([cell[part]]) for part in ("scale", "good_steps")}

    def set_scaler(self, scaler: dict[str, np.ndarray]) -> None:
        """Continue with this loss scale; if it is empty, with the initial one."""
        scale, good = self._loss_scale, 0
        if scaler:
            scale, good = (scaler[f"scaler/{part}"][0] for part in ("scale", "good_steps"))
        self.execution.write_cell(LOSS_SCALE, np.array((scale, good, 0), SCALER))

    def _settle_scale(self) -> float:
        """Return a loss scale that suits all batches of the bundle."""
        self.set_learning_rate(self.execution, 0.0)
        return settle_loss_scale(self.iterate, self._current_scale, self.workload.batches)

    def _current_scale(self) -> float:
        return float(self.execution.read_cell(LOSS_SCALE, SCALER)["scale"])

    # ------------------------------------------------------------ loading

    @property
    def _types(self) -> Types:
        return TYPES[self.workload.precision]

    def _load_plan(self, bundle: Bundle, graph: Graph, engines: Engines) -> Execution:
        count = bundle.workload.batches
        built = build_plan(graph, engines, self._types, count)
        sources = {item.value.name: item for item in graph.inputs}
        batches = bundle_arrays.batches(bundle, count)
        with bundle_arrays.graph_weights(bundle) as read:
            made = Execution(built, self.gpu, sources, batches, read, ranks=self._ranks)
        self.require_fitting_ranks(made)
        return made

    def _warm_up_tail(self) -> None:
        """Copy the state to the smaller plan and back, which compiles the copies. Run that plan in
        between, which captures its graph."""
        self.tail.take_state(self.execution)
        self.tail.run(0)
        self.execution.take_state(self.tail)


if __name__ == "__main__":
    autotune = sys.argv[1] == "autotune"
    run(lambda: CuDnn(*map(Path, sys.argv[1 + autotune :]), autotune=autotune))
