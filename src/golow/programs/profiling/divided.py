"""A trace from the times of a level's steps, for workers without a profiler.

Steps are laid end to end: each began when the one before ended. What lay between them is not in
the trace, so that it has no part ``other``.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from golow.programs.profiling.trace import ANNOTATION, KERNEL, OPERATOR
from golow.records.comparison import LayerTime
from golow.worker.protocol import LAYER, PHASE, STEP
from golow.worker.tracing import event, write_events


def write_divided(layers: Sequence[LayerTime], file: Path, *, on_device: bool) -> None:
    """Write the trace of as many iterations as the layers have times.

    on_device: the times are those of a device, whose events are kernels.
    """
    category, lane = (KERNEL, "device") if on_device else (OPERATOR, "host")
    events: list[dict[str, object]] = []
    moment = 0
    for number, spent in enumerate(zip(*(layer.ns for layer in layers), strict=True)):
        began = moment
        for layer, nanoseconds in zip(layers, spent, strict=True):
            for name, kind in (
                (f"{PHASE}{layer.phase}", ANNOTATION),
                (f"{LAYER}{layer.modules[0]}", ANNOTATION),
                (layer.operation, category),
            ):
                events.append(event(name, kind, lane, moment, moment + nanoseconds))
            moment += nanoseconds
        events.append(event(f"{STEP}{number}", ANNOTATION, "host", began, moment))
    write_events(events, file)
