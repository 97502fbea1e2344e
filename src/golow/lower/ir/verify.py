"""The graph's verifier: checks names and derives every shape and dtype from the operations.

A graph is verified after every pass, and most nodes stay as they are: what PyTorch gives for an
operation is kept by all that it depends on, its arguments and how its tensors are stored.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterator, Mapping
from itertools import accumulate
from operator import mul
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode

from golow.lower.ir.graph import Argument, Graph, Node, Ref, Scalar, Symbol, Value
from golow.lower.ir.operator import PREFIX, vocabulary


class GraphError(Exception):
    """An invalid graph; the message names the node and states what is wrong."""


def verify(graph: Graph) -> Graph:
    """Raise `GraphError` unless every value is defined once before it is read, every output
    exists, and every node gives the shapes and dtypes that the graph states. Returns the graph.
    """
    tensors = _of_inputs(graph)
    if len(tensors) != len(graph.inputs):
        raise GraphError(f"{graph.name}: two inputs have the same name")
    for node in graph.nodes:
        for name in node.references():
            if name not in tensors:
                raise GraphError(f"node {node.name}: {name} is read before it is defined")
        _compare(node, _derived(node, tensors), tensors)
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


def results_of(node: Node, values: Mapping[str, Value]) -> tuple[Value, ...]:
    """The shape and dtype of each tensor that the node gives for such values. Names are empty."""
    forms = {name: _contiguous(values[name]) for name in node.references()}
    found = _derived(node, forms)
    return tuple(
        Value(name="", shape=form.shape, dtype=str(form.dtype).removeprefix("torch."))
        for form in found
        if form is not None
    )


def operation(op: str) -> Any:
    """torch's overload with this full name, e.g. ``aten.conv2d.default``, or the meaning of an
    operator of the vocabulary, e.g. ``golow.convolution``."""
    if op.startswith(PREFIX):
        return vocabulary()[op].meaning
    namespace, name, overload = op.split(".")
    return getattr(getattr(getattr(torch.ops, namespace), name), overload)


class _Form(NamedTuple):
    """A tensor without its elements. offset: of its first element in its storage, elements; bytes:
    of that storage."""

    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: torch.dtype
    offset: int
    bytes: int


class _Effect(NamedTuple):
    """Results of an operation (None for what is not a tensor), and the tensors that it has read,
    whose form one in place may change."""

    results: tuple[_Form | None, ...]
    read: tuple[_Form, ...]


_EFFECTS: dict[Hashable, _Effect] = {}
_MOST_EFFECTS = 50_000  # about 1 KB each; networks have hundreds that differ


def _of_inputs(graph: Graph) -> dict[str, _Form]:
    return {item.value.name: _contiguous(item.value) for item in graph.inputs}


def _contiguous(value: Value) -> _Form:
    dtype, elements = getattr(torch, value.dtype), math.prod(value.shape)
    strides = accumulate((max(size, 1) for size in reversed(value.shape[1:])), mul, initial=1)
    ordered = tuple(reversed(tuple(strides))) if value.shape else ()
    return _Form(value.shape, ordered, dtype, 0, elements * dtype.itemsize)


def _derived(node: Node, tensors: dict[str, _Form]) -> tuple[_Form | None, ...]:
    """The forms of the node's results; changes those of its arguments as the operation does."""
    key = _everything(node, tensors)
    effect = _EFFECTS.get(key)
    if effect is None:
        effect = _run_without_elements(node, tensors)
        if len(_EFFECTS) >= _MOST_EFFECTS:
            _EFFECTS.clear()
        _EFFECTS[key] = effect
    tensors.update(zip(node.references(), effect.read, strict=True))
    return effect.results


# One for all nodes: a new one notes the stack of calls, which takes longer than most operations.
_WITHOUT_ELEMENTS = FakeTensorMode()


def _run_without_elements(node: Node, tensors: dict[str, _Form]) -> _Effect:
    with _WITHOUT_ELEMENTS:
        made = {name: _made(tensors[name]) for name in node.references()}
        results = run_node(node, made)
    return _Effect(
        tuple(_form(item) if isinstance(item, Tensor) else None for item in results),
        tuple(_form(made[name]) for name in node.references()),
    )


def _everything(node: Node, tensors: dict[str, _Form]) -> Hashable:
    """All that decides what the node gives. Types stand beside numbers, since 1 == 1.0 == True."""

    def of(argument: Argument) -> Iterator[Hashable]:
        for item in argument if isinstance(argument, tuple) else (argument,):
            yield tensors[item.name] if isinstance(item, Ref) else (type(item), item)

    def form(argument: Argument) -> Hashable:
        return isinstance(argument, tuple), *of(argument)

    return (
        node.op,
        node.several,
        torch.get_default_dtype(),
        *map(form, node.arguments),
        *((name, form(argument)) for name, argument in node.keywords.items()),
    )


def _form(tensor: Tensor) -> _Form:
    return _Form(
        tuple(tensor.shape),
        tensor.stride(),
        tensor.dtype,
        int(tensor.storage_offset()),
        tensor.untyped_storage().nbytes(),
    )


def _made(form: _Form) -> Tensor:
    """A tensor of that form; a view only where it is part of a storage."""
    plain = torch.empty_strided(form.shape, form.strides, dtype=form.dtype)
    if _form(plain) == form:
        return plain
    whole = torch.empty(form.bytes // form.dtype.itemsize, dtype=form.dtype)
    return whole.as_strided(form.shape, form.strides, form.offset)


def _compare(node: Node, results: tuple[_Form | None, ...], tensors: dict[str, _Form]) -> None:
    if len(results) != len(node.outputs):
        raise GraphError(
            f"node {node.name}: {node.op} gives {len(results)} values, not {len(node.outputs)}"
        )
    for value, form in zip(node.outputs, results, strict=True):
        if value is None:
            continue
        if form is None:
            raise GraphError(f"node {node.name}: {node.op} gives no tensor for {value.name}")
        found = Value(
            name=value.name, shape=form.shape, dtype=str(form.dtype).removeprefix("torch.")
        )
        if found != value:
            raise GraphError(
                f"node {node.name}: {value.name} is {value} in the graph, but {node.op} gives "
                f"{found}"
            )
        if value.name in tensors:
            raise GraphError(f"node {node.name}: {value.name} is defined twice")
        tensors[value.name] = form


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
