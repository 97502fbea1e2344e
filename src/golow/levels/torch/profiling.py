"""Writes torch.profiler's trace of iterations."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

import torch
from torch import nn
from torch.profiler import ProfilerActivity, profile, record_function

from golow.levels.torch.annotations import Annotations, SitesMarked, layers_marked
from golow.levels.torch.known_memory import Known, Snapshots
from golow.worker.protocol import MEMORY, STEP

WARM_UP = 2
"""Iterations before the first step, in which the profiler starts. They are in the trace. In the
last one the lines of the user's code are marked, which takes time that no step has."""

Iterate = Callable[[Annotations], None]


def write_trace(
    iterate: Iterate,
    iterations: int,
    file: Path,
    *,
    module: nn.Module | None,
    known: Callable[[], Iterable[Known]],
    on_device: bool,
) -> None:
    """Profile that many iterations and write the trace.

    module: whose layers are marked, if it is called as it is. known: the tensors that the program
    holds after an iteration; the trace has their addresses under `golow.worker.protocol.MEMORY`.
    Each step ends when the device is done, so that what it put there belongs to it: unlike in a
    loop, the host does not get ahead of the device from one step to the next.
    """
    activities = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if on_device else [])]
    annotations, snapshots = Annotations(), Snapshots(on_device)
    gc.collect()
    gc.disable()  # as when iterations are timed
    try:
        with (
            nullcontext() if module is None else layers_marked(module),
            profile(activities=activities, record_shapes=True, profile_memory=True) as recorded,
        ):
            for number in range(-WARM_UP, iterations):
                with record_function(f"{STEP}{number}"), _sites(number, module):
                    iterate(annotations)
                    annotations.leave()
                    if on_device:
                        torch.cuda.synchronize()
                snapshots.take(number, known())
            recorded.add_metadata_json(MEMORY, snapshots.encoded())
    finally:
        gc.enable()
    recorded.export_chrome_trace(str(file))


def _sites(number: int, module: nn.Module | None) -> AbstractContextManager[object]:
    return SitesMarked() if number == -1 and module is not None else nullcontext()
