"""Activities on the GPU and the host, as a trace in torch.profiler's words.

The kernels of a CUDA graph say nothing of the steps that they belong to. If the plan also ran step
by step, each kernel of the graph gets the step of the kernel of the same name, grid and block
there, in their order.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from golow.lower.plan.plan import Step
from golow.worker.protocol import STEP
from golow.worker.tracing import event

ON_DEVICE = {"kernel": "kernel", "copy": "gpu_memcpy", "memset": "gpu_memset"}
CATEGORIES = ON_DEVICE | {"driver": "cuda_driver", "runtime": "cuda_runtime"}

Key = tuple[object, ...]
Moment = tuple[int, int]


class Activity(NamedTuple):
    """One thing that happened, by CUPTI's clock in nanoseconds.

    kind: kernel, copy, memset, driver or runtime. lane: the stream, or the host's thread. sizes: a
    kernel's grid and block; registers of a thread; bytes: of shared memory, or that were copied or
    set. graph: whether it is part of a CUDA graph.
    """

    kind: str
    name: str
    lane: int
    start: int
    end: int
    correlation: int
    sizes: tuple[int, ...] = ()
    registers: int = 0
    bytes: int = 0
    graph: bool = False

    @property
    def key(self) -> Key:
        """Key that stays the same whenever the same step launches the activity."""
        return self.kind, self.name, self.sizes, self.bytes


def trace_events(
    activities: Sequence[Activity],
    moments: Sequence[Moment],
    steps: Sequence[tuple[Key, Step]],
) -> Iterator[dict[str, Any]]:
    """The iterations, and every activity in them, with the plan's step if it is on the device.

    Times begin at zero: the format has microseconds as floating point numbers, which cannot tell
    nanoseconds apart when they count from 1970.
    """
    origin = moments[0][0] if moments else 0
    for number, (start, end) in enumerate(moments):
        yield event(f"{STEP}{number}", "user_annotation", "host", start - origin, end - origin)
        waiting = defaultdict[Key, deque[Step]](deque)
        for key, step in steps:
            waiting[key].append(step)
        inside = (activity for activity in activities if start <= activity.start < end)
        for activity in sorted(inside, key=lambda activity: activity.start):
            details = _details(activity)
            if activity.kind in ON_DEVICE and (queue := waiting[activity.key]):
                details |= _place(queue.popleft())
            lane = f"{'stream' if activity.kind in ON_DEVICE else 'thread'} {activity.lane}"
            category = CATEGORIES[activity.kind]
            began, ended = activity.start - origin, activity.end - origin
            yield event(activity.name, category, lane, began, ended, details)


def _place(step: Step) -> dict[str, str]:
    layer = step.modules[0] if step.modules else ""
    return {"layer": layer, "phase": step.phase, "operation": step.operation}


def _details(activity: Activity) -> dict[str, Any]:
    """By torch.profiler's names."""
    details: dict[str, Any] = {"correlation": activity.correlation}
    if activity.kind in ("copy", "memset"):
        return details | {"bytes": activity.bytes}
    if activity.kind != "kernel":
        return details
    grid, block = activity.sizes[:3], activity.sizes[3:]
    return details | {
        "stream": activity.lane,
        "grid": grid,
        "block": block,
        "registers per thread": activity.registers,
        "shared memory": activity.bytes,
    }
