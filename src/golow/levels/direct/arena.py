"""The plan of an iteration's memory, as the worker protocol hands it over."""

from __future__ import annotations

from collections.abc import Mapping

from golow.lower.plan.memory_traffic import SCRATCH
from golow.lower.plan.plan import SHARED, Buffer, Plan
from golow.worker.protocol import (
    GRADIENTS,
    INPUTS,
    OPTIMIZER_STATE,
    PARAMETERS,
    WORKSPACE,
    ArenaReport,
    PlannedBuffer,
    PlannedStep,
)

Key = tuple[str, str]

OF_KEYS = {
    "parameter": PARAMETERS,
    "buffer": PARAMETERS,
    "constant": PARAMETERS,
    "momentum": OPTIMIZER_STATE,
    "square": OPTIMIZER_STATE,
    "steps": OPTIMIZER_STATE,
    "learning_rate": OPTIMIZER_STATE,
    "input": INPUTS,
    "target": INPUTS,
    "gradient": GRADIENTS,
}
"""Categories of a graph's inputs and outputs."""

OF_PLACES = {
    "constant": PARAMETERS,
    "state": PARAMETERS,
    "kept": PARAMETERS,
    "input": INPUTS,
    "master": PARAMETERS,
    "copy": PARAMETERS,
    "momentum": OPTIMIZER_STATE,
    "square": OPTIMIZER_STATE,
    "gradient": GRADIENTS,
}
"""Categories of the places of a plan, by the first part of their names: what is computed from
weights alone counts as parameters."""


def arena_report(plan: Plan, keys: Mapping[int, Key]) -> ArenaReport:
    """The plan without the steps that run once, and what only these use.

    keys: of the buffers that hold inputs or outputs of the graph.
    """
    steps = [step for step in plan.steps if not step.once]
    uses: dict[int, list[int]] = {}
    for position, step in enumerate(steps):
        for operand in (*step.reads, *step.writes):
            uses.setdefault(operand.buffer, []).append(position)
    sizes = {place: size for place, size in plan.sizes.items() if place != "once"}
    buffers = []
    for index, buffer in enumerate(plan.buffers):
        if buffer.place == "once" or (buffer.place in SHARED and index not in uses):
            continue
        key = keys.get(index, ("", ""))
        place = buffer.place
        if place == "input":  # each has its own memory
            place = f"input.{index}"
            sizes[place] = buffer.bytes
        found = uses.get(index, [0])
        shared = buffer.place in SHARED
        buffers.append(
            PlannedBuffer(
                name=key[1] or buffer.name,
                place=place,
                offset=buffer.offset,
                bytes=buffer.bytes,
                first=found[0] if shared else 0,
                last=len(steps) if not shared or key[0] in ("output", "loss") else found[-1],
                category=_category(buffer, key),
            )
        )
    planned = tuple(
        PlannedStep(
            operation=step.operation,
            layer=step.modules[0] if step.modules else "",
            phase=step.phase,
        )
        for step in steps
    )
    return ArenaReport(steps=planned, buffers=tuple(buffers), sizes=sizes)


def _category(buffer: Buffer, key: Key) -> str:
    """Category of the buffer; empty for values that a step computes."""
    if key[0] in OF_KEYS:
        return OF_KEYS[key[0]]
    if buffer.name.endswith(SCRATCH):
        return WORKSPACE
    return OF_PLACES.get(buffer.place.partition(".")[0], "")
