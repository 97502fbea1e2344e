"""Nodes of graphs by hand: values have shapes, and no tensors."""

from __future__ import annotations

from golow.lower.ir.graph import (
    GraphInput,
    InputKind,
    Node,
    Phase,
    Value,
)
from golow.lower.ir.operator import Operator, written


def value(name: str, *shape: int, dtype: str = "float32") -> Value:
    return Value(name=name, shape=shape, dtype=dtype)


def given(name: str, *shape: int, dtype: str = "float32", kind: InputKind = "input") -> GraphInput:
    return GraphInput(value=value(name, *shape, dtype=dtype), kind=kind, target=name)


def node(
    operator: Operator, *outputs: Value | None, phase: Phase = "forward", module: str = "layer"
) -> Node:
    """It has the name of its first value."""
    name = next((item.name for item in outputs if item is not None), "node")
    empty = Node(name=name, op="", arguments=(), module=module, phase=phase)
    return written(empty, operator, outputs=outputs)
