"""A trace from the times of a level's steps, for workers without a profiler.

Steps are laid end to end: each began when the one before ended. What lay between them is not in
the trace, so that it has no part ``other``.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import msgspec

from golow.files import write_whole
from golow.profiling.trace import ANNOTATION, KERNEL, OPERATOR, STEP
from golow.record import LayerTime

LANES = {OPERATOR: "host", KERNEL: "device"}


def write_divided(layers: Sequence[LayerTime], file: Path, *, on_device: bool) -> None:
    """Write the trace of as many iterations as the layers have times.

    on_device: the times are those of a device, whose events are kernels.
    """
    category = KERNEL if on_device else OPERATOR
    events: list[dict[str, object]] = []
    moment = 0
    for number, spent in enumerate(zip(*(layer.ns for layer in layers), strict=True)):
        began = moment
        for layer, nanoseconds in zip(layers, spent, strict=True):
            details = {"layer": layer.modules[0], "phase": layer.phase}
            events.append(_event(layer.operation, category, moment, nanoseconds, details))
            moment += nanoseconds
        events.append(_event(f"{STEP}{number}", ANNOTATION, began, moment - began, {}))
    write_whole(file, msgspec.json.encode({"traceEvents": events}))


def _event(
    name: str, category: str, start: int, nanoseconds: int, details: dict[str, str]
) -> dict[str, object]:
    return {
        "ph": "X",
        "name": name,
        "cat": category,
        "pid": 0,
        "tid": LANES.get(category, "host"),
        "ts": start / 1000,
        "dur": nanoseconds / 1000,
        "args": details,
    }
