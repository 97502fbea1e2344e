"""`onednn` as the target of `golow.compile`."""

from __future__ import annotations

import ctypes
import time
from collections import defaultdict
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from statistics import median

import numpy as np
import torch
from ml_dtypes import bfloat16
from torch import Tensor, nn

from golow.levels.called.float32_copy import float32_copy
from golow.levels.called.target import Run
from golow.levels.compiler import find_compiler
from golow.levels.direct.bundle_arrays import Read, in_pairs
from golow.levels.direct.onednn import level as onednn
from golow.levels.direct.onednn.planning import require_runnable
from golow.levels.direct.onednn.run.borrowed_weights import Lent
from golow.levels.direct.onednn.run.called_plan import CalledPlan, chosen_layouts
from golow.levels.direct.onednn.run.kernel_compilation import Workshop, set_threads
from golow.levels.direct.onednn.run.shared_weights import Region, SharedWeights
from golow.lower.ir.graph import Graph, Pass
from golow.lower.recognise.half_weights import keeping_bf16
from golow.records.errors import GolowError
from golow.records.workload import Precision, Workload
from golow.worker.cores import require_threads

PRECISIONS = ("default", "ieee")
SECONDS = 0.5  # of timing steps


class Processor:
    """The CPU, with that many threads in each call. shares: whether plans read the module's own
    weights. generates: whether it is a step of a language model, whose weights may be bf16; its
    plans compute in float32. Raises `GolowError` for a precision that the level does not have, and
    if the level is not installed."""

    level = "onednn"
    device = torch.device("cpu")

    def __init__(
        self,
        module: nn.Module,
        precision: Precision,
        threads: int | None,
        shares: bool,
        generates: bool = False,
    ) -> None:
        if precision not in PRECISIONS:
            raise GolowError(
                f"onednn computes in float32, not in {precision}", "leave precision= out."
            )
        found = next((p.dtype for p in module.parameters() if p.is_floating_point()), torch.float32)
        halves = generates and found == torch.bfloat16
        if found != torch.float32 and not halves:
            name = str(found).removeprefix("torch.")
            raise GolowError(
                f"onednn computes in float32, and the module is {name}",
                "call the module's .float().",
            )
        if threads is not None:
            require_threads(threads)
        probe = onednn.probe()
        if not probe.available:
            raise GolowError(f"onednn: {probe.missing}", probe.fix)
        self.precision: Precision = "bf16" if halves else precision
        self.threads, self.shares = threads or torch.get_num_threads(), shares
        self._own = module.state_dict() if shares else {}
        self._halves = _in_bf16(module) if halves else frozenset()

    def passes(self, workload: Workload) -> tuple[Pass, ...]:
        """The level's passes, and one for weights in bf16."""
        further = (keeping_bf16(self._halves),) if self._halves else ()
        return (*onednn.passes(workload), *further)

    def require_runnable(self, graph: Graph) -> None:
        """Raise `Unsupported` for the first node that the level cannot run."""
        require_runnable(graph)

    def captured_as(self, module: nn.Module) -> nn.Module:
        """The module itself; a copy in float32 of one in bf16."""
        return float32_copy(module) if self._halves else module

    def captured_with(self, sample: Sequence[Tensor]) -> tuple[Tensor, ...]:
        """The inputs themselves."""
        return tuple(sample)

    def array(self, tensor: Tensor) -> np.ndarray:
        """The tensor as a NumPy array."""
        whole = tensor.cpu().contiguous()
        if whole.dtype == torch.bfloat16:
            halves: np.ndarray = whole.view(torch.int16).numpy().view(bfloat16)
            return halves
        return in_pairs(whole.numpy())

    def building(self) -> None:
        """Let this thread build and load with that many threads."""
        set_threads(self.threads)

    def done(self) -> None:
        """Return freed memory to the system: glibc keeps it, and runs of the module and graphs
        leave up to a gigabyte."""
        with suppress(AttributeError):  # another C library
            ctypes.CDLL(None).malloc_trim(0)

    def build(
        self,
        graph: Graph,
        read: Read,
        sample: Sequence[Tensor],
        outputs: Sequence[Tensor],
        folder: Path,
        tune: bool,
    ) -> CalledPlan:
        """Build the plan of one size."""
        if not self._halves:
            _require_outputs_like(graph, outputs)
        folder = onednn.write_graph(graph, self.threads, folder)
        example = {("input", str(k)): item.contiguous().numpy() for k, item in enumerate(sample)}
        compiler = find_compiler()
        workshop = Workshop(compiler, folder.parent) if compiler else None
        layouts = chosen_layouts(graph, read, folder, workshop, tune=tune, example=example)
        plan = CalledPlan(graph, read, workshop, layouts=layouts, as_stored=self.shares)
        if self.shares:
            self._lend(plan)
        return plan

    def _lend(self, plan: CalledPlan) -> None:
        """Let the plan read the module's weights. Raises `GolowError` if it has some of its own:
        some that follow the module and some that do not would be wrong together."""
        spread = [name for name, item in self._own.items() if not item.is_contiguous()]
        found = next(iter(spread), None) or plan.prepared()
        if found is not None:
            raise GolowError(
                f"share=True needs plans that read every weight in the module's memory, but "
                f"{found} is folded or in another layout",
                "leave share= out, and call f.load_state_dict(model.state_dict()) after a change.",
            )
        plan.borrow(lambda name: Lent(self._own[name].data_ptr(), self._own[name]))

    def shared_weights(self) -> SharedWeights:
        """A new memory for weights."""
        return SharedWeights()

    def arena(self, size: int, number: int) -> Region:
        """A new memory for iterations."""
        return Region(size)

    def running(self, plan: CalledPlan, arena: Region) -> Run:
        """The plan over a memory for iterations; each call has the threads of this target."""
        return plan.running(arena, self.threads).run

    def step_seconds(
        self, plan: CalledPlan, inputs: Sequence[Tensor], outputs: Sequence[Tensor]
    ) -> dict[int, float]:
        """The medians of some iterations, over a separate memory."""
        self.building()
        running = plan.running(self.arena(plan.plan.sizes["arena"], 1), self.threads)
        running.run([item.data_ptr() for item in inputs], [item.data_ptr() for item in outputs])
        taken: dict[int, list[int]] = defaultdict(list)
        end = time.perf_counter() + SECONDS
        while not taken or time.perf_counter() < end:
            for position, nanoseconds in running.run_timed():
                taken[position].append(nanoseconds)
        return {position: median(each) / 1e9 for position, each in taken.items()}


def _require_outputs_like(graph: Graph, outputs: Sequence[Tensor]) -> None:
    """Raise `GolowError` unless the graph returns what the module did: its plan would write beyond
    memory of another size."""
    values = graph.values()
    made = {int(item.target): item.name for item in graph.outputs if item.kind == "output"}
    for place, tensor in enumerate(outputs):
        value, dtype = values[made[place]], str(tensor.dtype).removeprefix("torch.")
        if (value.shape, value.dtype) != (tuple(tensor.shape), dtype):
            raise GolowError(
                f"output {place} of the module is {dtype}{list(tensor.shape)}, and {value} where "
                "torch captures it",
                "a module that does something else while it is exported cannot be compiled.",
            )


def _in_bf16(module: nn.Module) -> frozenset[str]:
    """Return all names of all parameters in bf16."""
    named = module.named_parameters(remove_duplicate=False)
    return frozenset(name for name, item in named if item.dtype == torch.bfloat16)
