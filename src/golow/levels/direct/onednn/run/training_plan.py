"""Training steps of one network in the caller's own process: plans over one state.

Nothing here imports a framework: inputs are addresses.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec
import numpy as np

from golow.levels.compiler import find_compiler
from golow.levels.direct.bundle_arrays import Batch, Read
from golow.levels.direct.onednn.bindings.library import Engine
from golow.levels.direct.onednn.planning import arranged, build_plan
from golow.levels.direct.onednn.run import tuning
from golow.levels.direct.onednn.run.execution import Execution
from golow.levels.direct.onednn.run.iterations import Iterations
from golow.levels.direct.onednn.run.kernel_compilation import Workshop
from golow.levels.direct.onednn.run.mutable_state import MutableState
from golow.levels.direct.onednn.run.shared_weights import Region
from golow.levels.direct.onednn.steps.built_plan import Built, Switches, Tensor
from golow.levels.direct.plan_program import SEEN, Key, clipped
from golow.levels.direct.ranks.exchanges import Exchanges
from golow.levels.direct.ranks.meeting import Meeting
from golow.levels.direct.ranks.shared_mean import SharedMean, alone
from golow.lower.ir.graph import Graph
from golow.lower.plan.plan import Plan
from golow.storage.cache import write_sealed

WEIGHTS = ("parameter", "buffer")


class TrainingPlans:
    """The plans of one network, such as those of several batch sizes. One of them runs at a time.

    state: what all of them read and change. kernels: the folder of compiled kernels. seed: of the
    random layers, in all plans together. meeting: of the ranks that train together; they build
    their first plans together, and may build others alone.
    """

    def __init__(self, kernels: Path, seed: int, meeting: Meeting | None = None) -> None:
        mean = None if meeting is None else SharedMean(meeting)
        self.state, self.switches = MutableState(), Switches(seed, mean)
        self._meeting, self._exchanges = meeting, Exchanges(meeting)
        self._engine, self._arena = Engine(), Region(0)
        compiler = find_compiler()
        self._workshop = Workshop(compiler, kernels) if compiler else None

    @property
    def iteration_bytes(self) -> int:
        """Bytes that an iteration of the largest plan needs besides the state."""
        return len(self._arena.bytes)

    def add(
        self,
        graph: Graph,
        read: Read,
        folder: Path,
        example: Batch,
        tune: bool,
        threads: int | None = None,
    ) -> TrainingPlan:
        """Build the plan of a lowered training graph; its state is not written yet.

        read(kind, target): a constant, and for tuning also weights. folder: the level's cache for
        this graph. example: of a batch. tune: whether to choose layouts by measuring, unless they
        were chosen before. threads: that steps use; None leaves their number. Raises `Unsupported`
        for shapes that the library refuses.
        """
        layouts = self._layouts_of_all_ranks(
            lambda: self._layouts(graph, read, folder, example, tune)
        )
        generates = self._workshop is not None
        built = build_plan(
            graph, self._engine, layouts.tag, self.switches, generates, self.state.layouts
        )
        self._exchanges.require_fitting(built)
        if built.plan.sizes["arena"] > len(self._arena.bytes):
            self._arena = Region(built.plan.sizes["arena"])
        execution = Execution(
            built,
            self._engine,
            read,
            self._workshop,
            arena=self._arena,
            elsewhere=self.state.places(built),
        )
        self.state.hold(execution)
        return TrainingPlan(execution, threads)

    def _layouts_of_all_ranks(self, choose: Callable[[], tuning.Layouts]) -> tuning.Layouts:
        """Return the layouts. Those of the first plan, which decide in which layouts weights are
        held, are rank 0's on all ranks."""
        if self._meeting is None or self.state.layouts:
            return choose()
        name = self._meeting.numbered("layouts")
        found = self._meeting.from_first(name, lambda: msgspec.json.encode(choose()))
        return msgspec.json.decode(found, type=tuning.Layouts)

    def _layouts(
        self, graph: Graph, read: Read, folder: Path, example: Batch, tune: bool
    ) -> tuning.Layouts:
        layouts = tuning.read(folder / tuning.LAYOUTS_FILE, [])
        if tune and (layouts is None or not layouts.clean):
            layouts = self._tuned(graph, read, example)
            write_sealed(folder / tuning.LAYOUTS_FILE, msgspec.json.encode(layouts))
        return layouts or tuning.Layouts(positions={})

    def _tuned(self, graph: Graph, read: Read, example: Batch) -> tuning.Layouts:
        """Choose the layouts with steps on a separate state."""

        def loaded(layouts: tuning.Layouts) -> Execution:
            generates = self._workshop is not None
            built = build_plan(graph, self._engine, layouts.tag, Switches(0, alone), generates)
            execution = Execution(built, self._engine, read, self._workshop)
            for (kind, target), tensor in built.inputs.items():
                if kind in WEIGHTS:
                    execution.write(tensor, read(kind, target))
            execution.pointing(example)()
            return execution

        return tuning.choose(arranged(graph, self._workshop is not None), loaded)


class TrainingPlan:
    """A plan of a step that is ready to run. bytes: of its own constants."""

    def __init__(self, execution: Execution, threads: int | None = None) -> None:
        built = execution.built
        self.plan: Plan = built.plan
        self.loss_address = execution.address(built.outputs["loss", "loss"][0])
        self._execution = execution
        given = _read(built, "input"), _read(built, "target")
        self._iterations = Iterations(execution, *given, threads)

    def __call__(self, inputs: Sequence[int], targets: Sequence[int]) -> None:
        """Run the step on a batch at these addresses."""
        self._iterations.run(inputs, targets)

    def observed(self, inputs: Sequence[int], targets: Sequence[int]) -> dict[Key, np.ndarray]:
        """Run the same; return loss, outputs and gradients. Each is copied right after its step,
        because a later step may reuse its memory."""
        outputs, found = self.built.outputs, dict[Key, np.ndarray]()
        at_step: dict[int, list[Key]] = defaultdict(list)
        for key, (_, position) in outputs.items():
            if key[0] in SEEN:
                at_step[position].append(key)

        def see(position: int) -> None:
            for key in at_step.get(position, ()):
                found[key] = self._execution.read(outputs[key][0])

        self._iterations.prepare(inputs, targets)
        self._execution.run_watched(see)
        see(-1)
        return clipped(found)

    @property
    def built(self) -> Built:
        """The plan with what executes it."""
        return self._execution.built

    def constant(self, kind: str, target: str) -> np.ndarray:
        """A copy of a constant of the graph."""
        return self._execution.read(self.built.inputs[kind, target])


def _read(built: Built, wanted: str) -> list[Tensor | None]:
    """The inputs of a kind by position, up to the last one that the plan reads."""
    found = {int(target): item for (kind, target), item in built.inputs.items() if kind == wanted}
    return [found.get(position) for position in range(max(found, default=-1) + 1)]
