"""A trace from the times of a level's steps, for workers without a profiler.

Steps are laid end to end: each began when the one before ended. What lay between them is not in
the trace, so that it has no part ``other``.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from golow.programs.profiling.communication import AVERAGED, DIRECT
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
    averaged, moment = _averaged(layers), 0
    for number, spent in enumerate(zip(*(layer.ns for layer in layers), strict=True)):
        began = moment
        for position, (layer, nanoseconds) in enumerate(zip(layers, spent, strict=True)):
            end = moment + nanoseconds
            for name in (f"{PHASE}{layer.phase}", f"{LAYER}{layer.modules[0]}"):
                events.append(event(name, ANNOTATION, lane, moment, end))
            details = {AVERAGED: averaged[position]} if position in averaged else {}
            events.append(event(layer.operation, category, lane, moment, end, details))
            moment = end
        events.append(event(f"{STEP}{number}", ANNOTATION, "host", began, moment))
    write_events(events, file)


def _averaged(layers: Sequence[LayerTime]) -> dict[int, list[str]]:
    """Return, by the position of each average over ranks, the layers of the backward pass since the
    previous average: those whose gradients it contains."""
    found: dict[int, list[str]] = {}
    passed: dict[str, None] = {}
    for position, layer in enumerate(layers):
        if layer.operation == DIRECT:
            found[position], passed = list(passed), {}
        elif layer.phase == "backward":
            passed |= dict.fromkeys(filter(None, layer.modules))
    return found
