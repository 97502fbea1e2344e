"""Layers on a device: the time and the number of their kernels, from a trace."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from typing import get_args

from golow.programs.profiling.places import Places
from golow.programs.profiling.trace import ON_DEVICE, Trace
from golow.records.comparison import LayerTime
from golow.records.workload import LayerPhase

PHASES: tuple[LayerPhase, ...] = get_args(LayerPhase)

Row = tuple[str, LayerPhase]


def layers_on_device(trace: Trace, timed: Sequence[LayerTime]) -> tuple[LayerTime, ...]:
    """The layers in the order in which they begin; empty if nothing ran on a device.

    A layer's time is that of its kernels, copies and memsets, not of the gaps between them. What
    belongs to no layer is the top of the model. timed: the level's own steps, which state what a
    layer is called and which others run with it.
    """
    steps = len(trace.steps)
    spent: dict[Row, list[int]] = defaultdict(lambda: [0] * steps)
    calls = Counter[Row]()
    for number, row, nanoseconds in _device_work(trace):
        spent[row][number] += nanoseconds
        calls[row] += 1
    known = {(step.modules[0], step.phase): step for step in reversed(timed) if step.modules}
    return tuple(
        LayerTime(
            modules=known[row].modules if row in known else row[:1],
            phase=row[1],
            operation=known[row].operation if row in known else "",
            ns=tuple(ns),
            kernels=calls[row] / steps,
        )
        for row, ns in spent.items()
    )


def _device_work(trace: Trace) -> Iterator[tuple[int, Row, int]]:
    """Work on the device, in order: the number of its step, its layer, its nanoseconds."""
    places = Places(trace)
    device = [event for event in trace.events if event.category in ON_DEVICE]
    for number, step in enumerate(trace.steps):
        for event in device:
            if step.start <= event.start < step.end:
                layer, phase = places.of(event)
                known: LayerPhase = next((name for name in PHASES if name == phase), "forward")
                yield number, (layer, known), event.nanoseconds
