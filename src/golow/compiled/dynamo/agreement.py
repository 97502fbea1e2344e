"""Whether a plan gives what PyTorch gives for the same graph and inputs, but for rounding."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, fx
from torch.utils import _pytree as pytree

NEAR = 1e-5  # of an output's largest element: rounding of one layer or of a few
FARTHER = 4  # than PyTorch from float64: another order of sums is mostly within it
ROUNDINGS = 1e-6  # of the largest element, for outputs that PyTorch happens to compute exactly
FEW = 1e-4  # of all elements: signs of numbers around zero, which rounding turns


def difference(
    found: Sequence[Any], wanted: Sequence[Any], call: fx.GraphModule, given: Sequence[Any]
) -> str:
    """Say which output differs by more than rounding; empty if none does. call: the graph, to be
    run in float64 if an output is not near by itself."""
    exact: list[Any] | None = None
    for place, (one, other) in enumerate(zip(found, wanted, strict=True)):
        if not isinstance(other, Tensor):
            if one != other:
                return f"output {place} is {one}, not {other}"
            continue
        if one.shape != other.shape or one.dtype != other.dtype or one.stride() != other.stride():
            return f"output {place} has another form"
        if not other.is_floating_point():
            wrong = (one != other).sum().item()
            if wrong > FEW * other.numel():
                return f"output {place} has {wrong} other elements"
            continue
        if not _same_odd_numbers(one, other):
            return f"output {place} has other infinities or NaNs"
        if _distance(one, other) <= NEAR * _largest(other):
            continue
        if exact is None:
            exact = in_double(call, given)
        if exact is None or not _is_as_near(one, other, exact[place]):
            return f"output {place} is off by {_distance(one, other) / _largest(other):.1g}"
    return ""


def _is_as_near(found: Tensor, wanted: Tensor, exact: Tensor) -> bool:
    limit = FARTHER * _distance(wanted, exact) + ROUNDINGS * _largest(exact)
    return _distance(found, exact) <= limit


def _same_odd_numbers(one: Tensor, other: Tensor) -> bool:
    finite = other.isfinite()
    if not torch.equal(one.isfinite(), finite):
        return False
    return torch.equal(one[~finite].nan_to_num(), other[~finite].nan_to_num())


def _distance(one: Tensor, other: Tensor) -> float:
    apart = (one.double() - other.double()).abs().nan_to_num(0.0, 0.0, 0.0)
    return float(apart.max()) if apart.numel() else 0.0


def _largest(tensor: Tensor) -> float:
    finite = tensor[tensor.isfinite()]
    return max(float(finite.abs().max()), 1e-30) if finite.numel() else 1e-30


def in_double(call: fx.GraphModule, given: Sequence[Any]) -> list[Any] | None:
    """Run a graph in float64, also where its code names float32; None where that cannot be."""
    try:
        with torch.no_grad():
            results = _InDouble(call).run(*map(_doubled, given))
    except Exception:  # of PyTorch's operations, which have no common class
        return None
    return list(results) if isinstance(results, list | tuple) else [results]


class _InDouble(fx.Interpreter):
    def fetch_attr(self, target: str) -> Any:
        return _doubled(super().fetch_attr(target))

    def call_function(self, target: Any, args: Any, kwargs: Mapping[str, Any]) -> Any:
        args, kwargs = pytree.tree_map(_doubled, (args, dict(kwargs)))
        return super().call_function(target, args, kwargs)


def _doubled(item: Any) -> Any:
    if item is torch.float32:
        return torch.float64
    if isinstance(item, Tensor) and item.dtype is torch.float32:
        return item.detach().double()
    return item
