"""PyTorch on a GPU: arithmetic of each precision, device events, memory, copies from the host."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any, NamedTuple

import torch
from torch.profiler import ProfilerActivity, profile

from golow.levels.torch.loop_defaults import Habits
from golow.records.workload import Precision, Workload
from golow.storage.scratch import scratch_folder
from golow.worker.protocol import CopiesReport

HALVES: dict[Precision, torch.dtype] = {"bf16": torch.bfloat16, "fp16": torch.float16}


class Arithmetic(NamedTuple):
    """A workload's precision for a PyTorch program.

    storage: dtype of weights and activations. given: dtype of the input that an iteration gets; it
    casts the input to storage if they differ. autocast: dtype of the operations that autocast runs
    in lower precision. scaled: whether the loss is scaled, since gradients in half precision may
    underflow. casts_kept: whether autocast keeps the weights that it casts.
    """

    storage: torch.dtype
    given: torch.dtype
    autocast: torch.dtype | None = None
    scaled: bool = False
    casts_kept: bool = True

    def casting(self, device: str) -> AbstractContextManager[object]:
        """The context for the forward pass and the loss."""
        if self.autocast is None:
            return nullcontext()
        return torch.autocast(device, self.autocast, cache_enabled=self.casts_kept)


def arithmetic(workload: Workload, dtype: torch.dtype, habits: Habits) -> Arithmetic:
    """The arithmetic of the workload's precision for a level that computes in float32; a level with
    another dtype keeps it. Sets torch's flags for TF32 if the precision specifies them, or if the
    user chose otherwise."""
    found = _of_precision(workload, dtype)
    if habits.tf32_products is not None:
        torch.backends.cuda.matmul.allow_tf32 = habits.tf32_products
    if habits.tf32_convolutions is not None:
        torch.backends.cudnn.allow_tf32 = habits.tf32_convolutions
    return found._replace(casts_kept=habits.casts_kept)


def _of_precision(workload: Workload, dtype: torch.dtype) -> Arithmetic:
    if dtype != torch.float32:
        return Arithmetic(dtype, dtype)
    if workload.precision in ("ieee", "tf32"):
        # The older of torch's two interfaces: it also sets the newer flags, but not vice versa.
        torch.backends.cuda.matmul.allow_tf32 = workload.precision == "tf32"
        torch.backends.cudnn.allow_tf32 = workload.precision == "tf32"
    half = HALVES.get(workload.precision)
    if half is None:
        return Arithmetic(dtype, dtype)
    if workload.mode == "infer":
        return Arithmetic(half, torch.float32)
    return Arithmetic(dtype, dtype, half, scaled=half == torch.float16)


class EventStopwatch:
    """Pairs of CUDA events around iterations on the current stream."""

    def __init__(self, iterations: int) -> None:
        self._starts = [_event() for _ in range(iterations)]
        self._stops = [_event() for _ in range(iterations)]
        self._scratch: torch.Tensor | None = None

    def flush(self) -> None:
        """Enqueue a flush of the L2 cache: twice its size is written."""
        if self._scratch is None:
            size = 2 * torch.cuda.get_device_properties().L2_cache_size
            self._scratch = torch.empty(size, dtype=torch.uint8, device="cuda")
        self._scratch.zero_()

    def start(self, iteration: int) -> None:
        """Enqueue the event before that iteration."""
        self._starts[iteration].record()

    def stop(self, iteration: int) -> None:
        """Enqueue the event after that iteration."""
        self._stops[iteration].record()

    def nanoseconds(self) -> tuple[int, ...]:
        """Wait until the device is done; the device time of each iteration."""
        torch.cuda.synchronize()
        return tuple(map(elapsed_ns, self._starts, self._stops))


def mark() -> torch.cuda.Event:
    """Enqueue an event on the current stream."""
    event = _event()
    event.record()
    return event


def elapsed_ns(start: torch.cuda.Event, stop: torch.cuda.Event) -> int:
    """Nanoseconds between two events that have happened."""
    milliseconds: float = start.elapsed_time(stop)
    return round(milliseconds * 1e6)


def _event() -> torch.cuda.Event:
    return torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]


def counts_memory() -> bool:
    """True if memory comes from an allocator of PyTorch's, which counts it."""
    return torch.cuda.memory_reserved() > 0


def allocated_peak(run: Callable[[], None]) -> int:
    """Peak bytes that the caching allocator hands out during the run, beyond those before it."""
    torch.cuda.synchronize()
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    run()
    torch.cuda.synchronize()
    return torch.cuda.max_memory_allocated() - before


def copies(run: Callable[[], None], iterations: int) -> CopiesReport:
    """Copies from host to device per iteration, over that many runs; seen by the profiler."""
    run()  # not counted: the first run may load things that later runs reuse
    torch.cuda.synchronize()
    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as recorded:
        for _ in range(iterations):
            run()
        torch.cuda.synchronize()
    with scratch_folder() as folder:
        trace = folder / "trace.json"
        recorded.export_chrome_trace(str(trace))
        events = json.loads(trace.read_text())["traceEvents"]
    return host_copies(events, iterations)


def host_copies(events: list[dict[str, Any]], iterations: int) -> CopiesReport:
    """The copies from host to device among a trace's events, whose times are microseconds."""
    found = [
        event
        for event in events
        if event.get("cat") == "gpu_memcpy" and "HtoD" in event.get("name", "")
    ]
    kinds = {"pinned" if "Pinned" in event["name"] else "pageable" for event in found}
    return CopiesReport(
        bytes=round(sum(event["args"]["bytes"] for event in found) / iterations),
        nanoseconds=round(sum(event["dur"] for event in found) * 1e3 / iterations),
        kind=" and ".join(sorted(kinds)) or "none",
    )
