"""What is computed from weights alone, once, when a plan for inference is loaded."""

from __future__ import annotations

from typing import Any

from golow.levels.vendor.onednn.builder import Builder, Operator
from golow.levels.vendor.onednn.library import Descriptor
from golow.levels.vendor.weight_arithmetic import ARITHMETIC
from golow.lower.graph import Node, Ref


def once(build: Builder, node: Node) -> None:
    """A step on row-major arrays; what is no value of the graph is handed on as it is."""
    present = [isinstance(argument, Ref) for argument in node.arguments]
    tensors = [build.plain(argument) for argument in node.arguments if isinstance(argument, Ref)]
    output = node.outputs[0]
    assert output is not None  # noqa: S101
    result = build.new(output.name, output.shape, Descriptor.plain(output.shape))

    def call(*arrays: Any) -> None:
        *found, target = arrays
        rest = iter(found)
        given = [
            next(rest) if there else argument
            for there, argument in zip(present, node.arguments, strict=True)
        ]
        target[...] = ARITHMETIC[node.op](*given)

    build.array_call(call, tensors, [result])
    build.define(0, result)


OPERATORS: dict[str, Operator] = dict.fromkeys(ARITHMETIC, once)
