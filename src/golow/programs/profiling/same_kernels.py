"""Kernels that say nothing of their layer get the layer of the same kernels in another trace.

A CUDA graph runs the kernels that eager launched one by one: the same names, grids and blocks in
the same order. `torch.compile` keeps some of eager's kernels, such as the libraries'.
"""

from __future__ import annotations

from collections import Counter, defaultdict, deque

from golow.programs.profiling.operators import launchers
from golow.programs.profiling.places import Places
from golow.programs.profiling.trace import ON_DEVICE, Event, Trace

Key = tuple[str, str, str]


def with_layers_of(trace: Trace, model: Trace) -> Trace:
    """The trace, in which each kernel without a layer has that of the model's kernel of the same
    name, grid and block, in their order. Kernels that run more or less often stay as they are."""
    places, operators, own = Places(model), launchers(model), Places(trace)
    known = defaultdict[Key, list[dict[str, str]]](list)
    for event in _device_events(model, model.steps[-1]):
        layer, phase = places.of(event)
        operator = operators.get(int(event.details.get("correlation", -1)), "")
        known[_key(event)].append({"layer": layer, "phase": phase, "operation": operator})
    placed: dict[int, dict[str, str]] = {}
    for step in trace.steps:
        events = _device_events(trace, step)
        counts = Counter(map(_key, events))
        queues = {key: deque(found) for key, found in known.items() if len(found) == counts[key]}
        for event in events:
            if own.of(event).layer == "" and _key(event) in queues:
                placed[id(event)] = queues[_key(event)].popleft()
    return trace._replace(events=tuple(_told(event, placed) for event in trace.events))


def _device_events(trace: Trace, step: Event) -> list[Event]:
    return [e for e in trace.events if e.category in ON_DEVICE and step.start <= e.start < step.end]


def _key(event: Event) -> Key:
    return event.name, str(event.details.get("grid", "")), str(event.details.get("block", ""))


def _told(event: Event, placed: dict[int, dict[str, str]]) -> Event:
    more = placed.get(id(event))
    return event if more is None else event._replace(details={**event.details, **more})
