"""`associative_scan` of a linear recurrence as calls that PyTorch can trace without looking into
them: one for the scan, one for its gradients. In a graph they are operators of the vocabulary.

PyTorch's tracer would unfold the scan into a tree of slices, products, sums and concatenations, and
its gradients into as many again. The calls compute nothing: what they mean is in
`golow.lower.operators.linear_recurrence`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from importlib import import_module
from typing import Any

import torch
from torch import Tensor

from golow.lower.aten.recurrence_calls import NAMESPACE

_LIBRARY: Any = torch.library.Library(NAMESPACE, "FRAGMENT")  # type: ignore[no-untyped-call]
_LIBRARY.define("linear_recurrence(Tensor decay, Tensor x, int axis) -> Tensor")
_LIBRARY.define(
    "linear_recurrence_backward(Tensor gradient, Tensor decay, Tensor states, int axis) -> "
    "(Tensor, Tensor)"
)


def _shape(decay: Tensor, x: Tensor, axis: int) -> Tensor:
    return x.new_empty(x.shape)  # row-major, as the loop stacks its states


def _shapes(gradient: Tensor, decay: Tensor, states: Tensor, axis: int) -> tuple[Tensor, Tensor]:
    return decay.new_empty(decay.shape), states.new_empty(states.shape)


torch.library.register_fake(f"{NAMESPACE}::linear_recurrence", _shape, lib=_LIBRARY)
torch.library.register_fake(f"{NAMESPACE}::linear_recurrence_backward", _shapes, lib=_LIBRARY)
_calls = getattr(torch.ops, NAMESPACE)


class _Differentiable(torch.autograd.Function):
    """The call with its gradients."""

    @staticmethod
    def forward(ctx: Any, decay: Tensor, x: Tensor, axis: int) -> Tensor:
        states: Tensor = _calls.linear_recurrence(decay, x, axis)
        ctx.axis = axis
        ctx.save_for_backward(decay, states)
        return states

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Any:
        return *_calls.linear_recurrence_backward(gradient, *ctx.saved_tensors, ctx.axis), None


@contextmanager
def linear_scans_whole() -> Iterator[None]:
    """Within the block `associative_scan` of a linear recurrence is one call."""
    # The package has a function of the module's name.
    module: Any = import_module("torch._higher_order_ops.associative_scan")
    kept = module.associative_scan
    module.associative_scan = partial(_scan, kept)
    try:
        yield
    finally:
        module.associative_scan = kept


def _scan(
    kept: Callable[..., Any],
    combine_fn: Callable[..., Any],
    xs: Any,
    dim: int,
    reverse: bool = False,
    combine_mode: str = "pointwise",
) -> Any:
    """PyTorch's scan, with its arguments."""
    pair = isinstance(xs, tuple) and len(xs) == 2 and all(isinstance(x, Tensor) for x in xs)
    if reverse or not pair or xs[0].shape != xs[1].shape or not is_linear(combine_fn):
        return kept(combine_fn, xs, dim, reverse=reverse, combine_mode=combine_mode)
    decay, x = xs
    states = _Differentiable.apply(decay, x, dim % x.dim())  # type: ignore[no-untyped-call]
    return torch.cumprod(decay, dim), states


def is_linear(combine: Callable[..., Any]) -> bool:
    """True if the function combines the steps (a, b) and (c, d) to (c a, c b + d), in any order of
    factors and terms, by nothing but products and sums."""
    a, b, c, d = (Polynomial(Counter({(name,): 1})) for name in "abcd")
    try:
        factor, term = combine((a, b), (c, d))
        return bool(factor.terms == (c * a).terms and term.terms == (c * b + d).terms)
    except Exception:  # it does something else with its arguments, whatever that raises
        return False


class Polynomial:
    """A sum of products of unknowns. terms: how often each product occurs, by its factors."""

    def __init__(self, terms: Counter[tuple[str, ...]]) -> None:
        self.terms = terms

    def __add__(self, other: Polynomial) -> Polynomial:
        return Polynomial(self.terms + other.terms)

    def __mul__(self, other: Polynomial) -> Polynomial:
        found: Counter[tuple[str, ...]] = Counter()
        for one, count in self.terms.items():
            for two, times in other.terms.items():
                found[tuple(sorted(one + two))] += count * times
        return Polynomial(found)

    @classmethod
    def __torch_function__(
        cls, function: Any, types: Any, given: tuple[Any, ...] = (), named: Any = None
    ) -> Any:
        operators = {torch.mul: cls.__mul__, torch.add: cls.__add__}
        return operators[function](*given, **(named or {}))
