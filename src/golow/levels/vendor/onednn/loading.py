"""Steps that run once, while a plan for inference is loaded: what depends on weights alone."""

from __future__ import annotations

from typing import Any

import msgspec

from golow.levels.vendor.onednn.builder import Builder
from golow.levels.vendor.onednn.library import Descriptor
from golow.levels.vendor.weight_arithmetic import ARITHMETIC
from golow.lower.operator import Operator, references


def compute_when_loading(build: Builder, operator: Operator) -> None:
    """Add a step on row-major arrays; fields that are not values of the graph are passed as is."""
    compute, fields = ARITHMETIC[operator.op()], msgspec.structs.asdict(operator)
    given = references(operator)
    tensors = [build.plain(reference) for reference in given.values()]
    output = build.output()
    result = build.new(output.name, output.shape, Descriptor.plain(output.shape))

    def run(*arrays: Any) -> None:
        *found, target = arrays
        target[...] = compute(**{**fields, **dict(zip(given, found, strict=True))})

    build.array_call(run, tensors, [result])
    build.define(0, result)
