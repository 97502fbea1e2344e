"""Kernels: their launches on the GPU, and how well these filled it.

The estimates are those of the PyTorch profiler's plugin for TensorBoard: a kernel's SM efficiency
is the number of its blocks for each multiprocessor, at most one; achieved occupancy is an estimate
for each launch; both are means weighted by the kernels' time. If the trace has the properties of
the device, golow estimates the occupancy itself (`occupancy`), or else it takes the trace's.
https://github.com/pytorch/kineto/blob/main/tb_plugin/docs/gpu_utilization.md
"""

from __future__ import annotations

import math
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence

from golow.programs.profiling.occupancy import multiprocessors, occupancy
from golow.programs.profiling.operators import launchers
from golow.programs.profiling.places import Place, Places
from golow.programs.profiling.summary import clipped, union
from golow.programs.profiling.trace import KERNEL, Event, Trace
from golow.records.record import Record

OCCUPANCY, BLOCKS = "est. achieved occupancy %", "blocks per SM"

ON_TENSOR_CORES = re.compile(
    r"884|1688|168(16|32|64)|gmma|tensor_?op|mma_sync|fmha|flash|nvjet"
    r"|xmma_\w*(tf32|bf16|f16f16|e4m3|e5m2|i8)",
    re.IGNORECASE,
)
"""Kernels that use tensor cores, by their names: the shapes of the instructions that NVIDIA's
libraries put into them, warp group instructions, CUTLASS's name for tensor operations, cuBLAS'
nvjet kernels, cuDNN's and cuBLAS' xmma kernels in types that these instructions have (not
``f32f32_f32f32``), and fused attention. The plugin has such a list, too. A kernel whose name states
nothing of it is counted as one that does not."""


class KernelTime(Record, frozen=True, kw_only=True):
    """The launches of one kernel with one grid and block, in a step: the mean of all steps.

    seconds: of all its launches in a step; lowest, highest: of a single one. grid, block: threads
    and blocks in x, y and z. registers: of a thread. shared_memory: bytes of a block.
    blocks_per_sm, occupancy: estimates of the trace, means over the time; occupancy is a share.
    operator, layer, phase: what launched it most of the time; empty if that is not known.
    """

    name: str
    calls: float
    seconds: float
    lowest: float
    highest: float
    grid: tuple[int, ...] = ()
    block: tuple[int, ...] = ()
    registers: int | None = None
    shared_memory: int | None = None
    blocks_per_sm: float | None = None
    occupancy: float | None = None
    tensor_cores: bool = False
    operator: str = ""
    layer: str = ""
    phase: str = ""


class GpuSummary(Record, frozen=True, kw_only=True):
    """How a GPU was used in the steps, as shares.

    utilization: of the time in which a kernel ran. sm_efficiency: the mean share of the
    multiprocessors that had a block, over the whole time; occupancy: of their warps, while kernels
    ran. tensor_cores: of the kernels' time.
    """

    utilization: float
    sm_efficiency: float | None
    occupancy: float | None
    tensor_cores: float


def kernel_times(trace: Trace) -> tuple[KernelTime, ...]:
    """The kernels of the steps, the one that took the longest first."""
    groups: dict[tuple[str, str, str], list[Event]] = defaultdict(list)
    for event in _kernels(trace):
        shape = str(event.details.get("grid", "")), str(event.details.get("block", ""))
        groups[event.name, *shape].append(event)
    causes, estimates, steps = _causes(trace), _Estimates(trace), len(trace.steps)
    found = (_kernel_time(events, steps, causes, estimates) for events in groups.values())
    return tuple(sorted(found, key=lambda kernel: (-kernel.seconds, kernel.name)))


def gpu_summary(trace: Trace) -> GpuSummary | None:
    """How the GPU was used; None if no kernel ran in a step."""
    kernels = list(_kernels(trace))
    busy = sum(event.nanoseconds for event in kernels)
    if not busy:
        return None
    total = sum(step.nanoseconds for step in trace.steps)
    ran = 0
    for step in trace.steps:
        within = clipped(((k.start, k.end) for k in kernels), (step.start, step.end))
        ran += sum(end - start for start, end in union(within))
    estimates = _Estimates(trace)
    efficiency = _weighted(kernels, estimates.efficiency)
    return GpuSummary(
        utilization=ran / total,
        sm_efficiency=None if efficiency is None else efficiency * ran / total,
        occupancy=_weighted(kernels, estimates.occupancy),
        tensor_cores=sum(k.nanoseconds for k in kernels if uses_tensor_cores(k.name)) / busy,
    )


def uses_tensor_cores(name: str) -> bool:
    """True if a kernel's name states that it uses tensor cores."""
    return ON_TENSOR_CORES.search(name) is not None


# ---------------------------------------------------------------- implementation


def _kernels(trace: Trace) -> Iterator[Event]:
    return trace.in_steps(KERNEL)


Causes = Callable[[Event], tuple[str, Place]]


def _causes(trace: Trace) -> Causes:
    """Says of a kernel which operator launched it, and where in the model."""
    operators, places = launchers(trace), Places(trace)

    def cause(kernel: Event) -> tuple[str, Place]:
        launched = operators.get(int(kernel.details.get("correlation", -1)), "")
        return str(kernel.details.get("operation", launched)), places.of(kernel)

    return cause


def _kernel_time(
    events: Sequence[Event], steps: int, causes: Causes, estimates: _Estimates
) -> KernelTime:
    first = events[0].details
    operator, (layer, phase) = Counter(map(causes, events)).most_common(1)[0][0]
    seconds = [event.nanoseconds / 1e9 for event in events]
    registers = first.get("registers per thread")
    shared = first.get("shared memory")
    return KernelTime(
        name=events[0].name,
        calls=len(events) / steps,
        seconds=sum(seconds) / steps,
        lowest=min(seconds),
        highest=max(seconds),
        grid=tuple(map(int, first.get("grid", ()))),
        block=tuple(map(int, first.get("block", ()))),
        registers=None if registers is None else int(registers),
        shared_memory=None if shared is None else int(shared),
        blocks_per_sm=_weighted(events, estimates.blocks),
        occupancy=_weighted(events, estimates.occupancy),
        tensor_cores=uses_tensor_cores(events[0].name),
        operator=operator,
        layer=layer,
        phase=phase,
    )


def _weighted(events: Sequence[Event], figure: Callable[[Event], float | None]) -> float | None:
    """The mean over the kernels' time; None if no kernel has the figure."""
    known = [(event.nanoseconds, value) for event in events if (value := figure(event)) is not None]
    total = sum(nanoseconds for nanoseconds, _ in known)
    return sum(ns * value for ns, value in known) / total if total else None


class _Estimates:
    """How a launch fills the device; None if the trace does not tell."""

    def __init__(self, trace: Trace) -> None:
        self._device = multiprocessors(trace.device)

    def blocks(self, kernel: Event) -> float | None:
        """Blocks for each multiprocessor."""
        grid = kernel.details.get("grid")
        if self._device is None or not grid:
            return _number(kernel, BLOCKS)
        return math.prod(map(int, grid)) / self._device.number

    def efficiency(self, kernel: Event) -> float | None:
        """The share of the multiprocessors that had a block."""
        blocks = self.blocks(kernel)
        return None if blocks is None else min(1.0, blocks)

    def occupancy(self, kernel: Event) -> float | None:
        """The share of the threads that could be resident that were."""
        details = kernel.details
        if self._device is None or not (details.get("grid") and details.get("block")):
            share = _number(kernel, OCCUPANCY)
            return None if share is None else share / 100
        blocks, threads = (math.prod(map(int, details[name])) for name in ("grid", "block"))
        registers = int(_number(kernel, "registers per thread") or 0)
        shared = int(_number(kernel, "shared memory") or 0)
        return occupancy(self._device, blocks, threads, registers, shared)


def _number(event: Event, name: str) -> float | None:
    value = event.details.get(name)
    return float(value) if isinstance(value, (int, float)) else None
