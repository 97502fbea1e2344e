"""Memory that an iteration of PyTorch allocates on a CPU, as seen by the profiler."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch


def allocated_peak(iterate: Callable[[], None]) -> int:
    """Peak bytes that one iteration holds beyond those held before it."""
    from torch.profiler import ProfilerActivity, profile

    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as recorded:
        iterate()
    assert recorded.profiler is not None  # noqa: S101
    results = recorded.profiler.kineto_results
    held = peak = 0
    for change in _allocations(results.experimental_event_tree()):
        held += change
        peak = max(peak, held)
    return peak


def _allocations(events: list[Any]) -> Iterator[int]:
    """Signed bytes of every allocation and release, in chronological order."""
    found: list[tuple[int, int]] = []
    waiting = list(events)
    while waiting:
        event = waiting.pop()
        waiting.extend(event.children)
        if event.tag == torch._C._profiler._EventType.Allocation:
            found.append((event.start_time_ns, event.extra_fields.alloc_size))
    return (size for _, size in sorted(found, key=lambda pair: pair[0]))
