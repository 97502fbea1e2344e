"""The graph's verifier: checks names and derives every shape and dtype from the operations."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode

from golow.lower.graph import Argument, Graph, Node, Ref, Scalar, Symbol, Value
from golow.lower.operator import PREFIX, vocabulary


class GraphError(Exception):
    """An invalid graph; the message names the node and says what is wrong."""


def verify(graph: Graph) -> Graph:
    """Raise `GraphError` unless every value is defined once before it is read, every output
    exists, and every node gives the shapes and dtypes that the graph states. Returns the graph.
    """
    with FakeTensorMode():
        tensors = {item.value.name: _empty(item.value) for item in graph.inputs}
        if len(tensors) != len(graph.inputs):
            raise GraphError(f"{graph.name}: two inputs have the same name")
        for node in graph.nodes:
            for name in node.references():
                if name not in tensors:
                    raise GraphError(f"node {node.name}: {name} is read before it is defined")
            _compare(node, run_node(node, tensors), tensors)
    for output in graph.outputs:
        if output.name not in tensors:
            raise GraphError(f"output {output.kind}/{output.target}: there is no {output.name}")
    return graph


def interpret(graph: Graph, given: dict[str, Tensor]) -> dict[str, Tensor]:
    """Run the graph node by node in PyTorch; every other execution must give the same result.

    given: the inputs by value name. Returns the outputs by ``kind/target``.
    """
    tensors = dict(given)
    for node in graph.nodes:
        for value, tensor in zip(node.outputs, run_node(node, tensors), strict=True):
            if value is not None:
                tensors[value.name] = tensor
    return {f"{item.kind}/{item.target}": tensors[item.name] for item in graph.outputs}


def run_node(node: Node, tensors: dict[str, Tensor]) -> tuple[Tensor, ...]:
    """Execute one node on the tensors by value name; always returns a tuple of its outputs."""
    arguments = [_concrete(a, tensors) for a in node.arguments]
    keywords = {name: _concrete(a, tensors) for name, a in node.keywords.items()}
    result = operation(node.op)(*arguments, **keywords)
    return tuple(result) if node.several else (result,)


def operation(op: str) -> Any:
    """torch's overload with this full name, e.g. ``aten.conv2d.default``, or the meaning of an
    operator of the vocabulary, e.g. ``golow.convolution``."""
    if op.startswith(PREFIX):
        return vocabulary()[op].meaning
    namespace, name, overload = op.split(".")
    return getattr(getattr(getattr(torch.ops, namespace), name), overload)


def _empty(value: Value) -> Tensor:
    return torch.empty(value.shape, dtype=getattr(torch, value.dtype))


def _compare(node: Node, results: tuple[Tensor, ...], tensors: dict[str, Tensor]) -> None:
    if len(results) != len(node.outputs):
        raise GraphError(
            f"node {node.name}: {node.op} gives {len(results)} values, not {len(node.outputs)}"
        )
    for value, tensor in zip(node.outputs, results, strict=True):
        if value is None:
            continue
        found = Value(
            name=value.name, shape=tuple(tensor.shape), dtype=str(tensor.dtype)[len("torch.") :]
        )
        if found != value:
            raise GraphError(
                f"node {node.name}: the graph says {value.name} is {value}, {node.op} gives {found}"
            )
        if value.name in tensors:
            raise GraphError(f"node {node.name}: {value.name} is defined twice")
        tensors[value.name] = tensor


def _concrete(argument: Argument, tensors: dict[str, Tensor]) -> Any:
    if isinstance(argument, tuple):
        return [_concrete_scalar(item, tensors) for item in argument]
    return _concrete_scalar(argument, tensors)


def _concrete_scalar(item: Scalar, tensors: dict[str, Tensor]) -> Any:
    if isinstance(item, Ref):
        return tensors[item.name]
    if isinstance(item, Symbol):
        if item.kind == "float":
            return float(item.name)
        return torch.device(item.name) if item.kind == "device" else getattr(torch, item.name)
    return item
