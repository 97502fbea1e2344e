"""Writes torch.profiler's trace of iterations."""

from __future__ import annotations

import gc
from collections.abc import Callable
from pathlib import Path

import torch
from torch.profiler import ProfilerActivity, profile, record_function

WARM_UP = 2  # iterations in which the profiler starts; they are in the trace, and no steps


def write_trace(
    iterate: Callable[[], None], iterations: int, file: Path, *, on_device: bool
) -> None:
    """Profile that many iterations and write the trace.

    Each step ends when the device is done, so that what it put there belongs to it: unlike in a
    loop, the host does not get ahead of the device from one step to the next.
    """
    activities = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if on_device else [])]
    gc.collect()
    gc.disable()  # as when iterations are timed
    try:
        with profile(activities=activities, record_shapes=True, profile_memory=True) as recorded:
            for number in range(-WARM_UP, iterations):
                with record_function(f"golow step {number}"):
                    iterate()
                    if on_device:
                        torch.cuda.synchronize()
    finally:
        gc.enable()
    recorded.export_chrome_trace(str(file))
