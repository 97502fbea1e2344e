"""Recurrent layers as calls that PyTorch can trace without looking into them: one for a layer in
one direction, one for its gradients. In a graph they are operators of the vocabulary.

They compute nothing: `golow.lower.operators.recurrence` has what they mean.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any

import msgspec
import torch
from torch import Tensor
from torch._C import DispatchKey

from golow.lower.decompositions.recurrent import CALLS, Layer, loop, whole_call
from golow.lower.ir.graph import Node
from golow.lower.ir.operator import PREFIX

NAMESPACE = "golow_traced"

_GIVEN = (
    "str kind, bool backwards, Tensor x, Tensor hidden, Tensor? cell, Tensor input_weight, "
    "Tensor hidden_weight, Tensor? input_bias, Tensor? hidden_bias, Tensor? projection"
)
_LIBRARY: Any = torch.library.Library(NAMESPACE, "DEF")  # type: ignore[no-untyped-call]
_LIBRARY.define(f"recurrence({_GIVEN}) -> (Tensor, Tensor)")
_LIBRARY.define(
    "recurrence_backward(Tensor gradient, Tensor? last_gradient, Tensor output, "
    f"{_GIVEN}) -> ({', '.join(['Tensor'] * 8)})"
)


def _forward_shapes(
    kind: str, backwards: bool, x: Tensor, hidden: Tensor, cell: Tensor | None, *_: Any
) -> Any:
    last = x.new_empty(0) if cell is None else torch.empty_like(cell)
    return x.new_empty((*x.shape[:2], hidden.shape[1])), last


def _backward_shapes(
    gradient: Tensor, last: Tensor | None, output: Tensor, kind: str, backwards: bool, *given: Any
) -> Any:
    return tuple(gradient.new_empty(0 if item is None else item.shape) for item in given)


torch.library.register_fake(f"{NAMESPACE}::recurrence", _forward_shapes, lib=_LIBRARY)
torch.library.register_fake(f"{NAMESPACE}::recurrence_backward", _backward_shapes, lib=_LIBRARY)
_calls = getattr(torch.ops, NAMESPACE)

# Where PyTorch's tracer finds its definition of a recurrent layer.
_DEFINED_AT = (DispatchKey.CompositeImplicitAutograd, DispatchKey.Autograd)


def traced_layer(kind: str, backwards: bool, *given: Tensor | None) -> Any:
    """One call with the results of `golow.lower.decompositions.recurrent.loop`."""
    y, last = _Differentiable.apply(kind, backwards, *given)  # type: ignore[no-untyped-call]
    return y, last if kind == "lstm" else None


def plain_layer(kind: str, backwards: bool, *given: Tensor | None) -> Any:
    """One call of the layer without gradients."""
    y, last = _calls.recurrence(kind, backwards, *given)
    return y, last if kind == "lstm" else None


class _Differentiable(torch.autograd.Function):
    """The call with its gradients."""

    @staticmethod
    def forward(ctx: Any, kind: str, backwards: bool, *given: Tensor | None) -> Any:
        y, last = _calls.recurrence(kind, backwards, *given)
        ctx.place = kind, backwards
        ctx.save_for_backward(y, *given)
        ctx.set_materialize_grads(False)
        if kind != "lstm":
            ctx.mark_non_differentiable(last)
        return y, last

    @staticmethod
    def backward(ctx: Any, gradient: Tensor | None, last_gradient: Tensor | None) -> Any:
        y, *given = ctx.saved_tensors
        gradient = torch.zeros_like(y) if gradient is None else gradient
        last_gradient = last_gradient if ctx.place[0] == "lstm" else None
        found = _calls.recurrence_backward(gradient, last_gradient, y, *ctx.place, *given)
        wanted = (item is not None for item in given)
        return None, None, *(g if there else None for g, there in zip(found, wanted, strict=True))


@contextmanager
def recurrences_whole() -> Iterator[None]:
    """Within the block PyTorch differentiates recurrent layers as one call for each layer and
    direction, instead of unrolling them over time, or of calling oneDNN through ATen."""
    with _defined_by(traced_layer):
        yield


@contextmanager
def recurrences_right() -> Iterator[None]:
    """Within the block PyTorch infers the shapes of what recurrent layers return from golow's loop:
    its own, in some versions, has an axis too many in the last states of an LSTM."""
    with _defined_by(loop):
        yield


@contextmanager
def _defined_by(layer: Layer) -> Iterator[None]:
    with ExitStack() as stack:
        for name, kind in CALLS.items():
            stack.enter_context(_replaced(name, partial(whole_call, layer, kind)))
        yield


@contextmanager
def _replaced(name: str, definition: Callable[..., Any]) -> Iterator[None]:
    operator = getattr(torch.ops.aten, name.split(".")[1]).input
    kernels = operator.py_kernels
    kept = {key: kernels[key] for key in _DEFINED_AT}
    try:
        kernels.update(dict.fromkeys(_DEFINED_AT, definition))
        operator._dispatch_cache.clear()
        yield
    finally:
        kernels.update(kept)
        operator._dispatch_cache.clear()


def in_vocabulary(node: Node) -> Node:
    """A traced call of this file as the operator that it stands for; any other node as it is."""
    namespace, name, *_ = node.op.split(".")
    if namespace != NAMESPACE:
        return node
    names = (item.name for item in getattr(_calls, name).default._schema.arguments)
    keywords = dict(zip(names, node.arguments, strict=True))
    return msgspec.structs.replace(node, op=f"{PREFIX}{name}", arguments=(), keywords=keywords)
