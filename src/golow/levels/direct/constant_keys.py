"""Which constants of several plans of one network may be one piece of memory.

Plans of one network derive mostly the same constants from its weights, in the same layouts. Those
with equal keys and equal content are stored once.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import NamedTuple

from golow.lower.plan.plan import Plan


class ConstantKey(NamedTuple):
    """Key of constants that may share memory. It has the layouts, too: weights that
    are equal now, such as zeros, may differ when others are loaded."""

    name: str
    number: int  # among buffers of that name
    layouts: frozenset[str]
    size: int  # bytes


def constant_keys(plan: Plan) -> dict[int, ConstantKey]:
    """Return the key of each constant, by its buffer."""
    layouts: dict[int, set[str]] = defaultdict(set)
    for step in plan.steps:
        for operand in (*step.reads, *step.writes):
            layouts[operand.buffer].add(f"{operand.shape} {operand.layout}")
    seen: Counter[str] = Counter()
    keys = {}
    for index, buffer in enumerate(plan.buffers):
        if buffer.place == "constant":
            number = seen[buffer.name]
            seen[buffer.name] += 1
            keys[index] = ConstantKey(buffer.name, number, frozenset(layouts[index]), buffer.bytes)
    return keys
