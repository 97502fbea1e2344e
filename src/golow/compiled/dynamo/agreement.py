"""Test that a plan gives PyTorch's results for the same graph and inputs, up to rounding."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from functools import cached_property
from typing import Any

import torch
from torch import Tensor, fx
from torch.utils import _pytree as pytree

NEAR = 1e-5  # of an output's largest element: rounding of one layer or of a few
FARTHER = 10  # than PyTorch from float64: its norms add up in float64, oneDNN's in float32
ROUNDING = 2.0**-24  # of a float32, by which values are moved to see what moves with them
DROPPED = 2**13 - 1  # bits of a float32 that TF32 lacks
ROUNDINGS = 1e-6  # of the largest element, for outputs that PyTorch happens to compute exactly
FEW = 1e-4  # of all elements: signs of numbers around zero, which rounding turns


def difference(
    found: Sequence[Any],
    wanted: Sequence[Any],
    call: fx.GraphModule,
    given: Sequence[Any],
    in_tf32: Collection[Any] = (),
) -> str:
    """Return which output differs by more than rounding; empty if none does. call: the graph, which
    runs in float64 if an output is not close enough already. in_tf32: ATen operations that the plan
    may compute in TF32, possibly others than PyTorch does."""
    reference = _Reference(call, given, in_tf32)
    for place, (one, other) in enumerate(zip(found, wanted, strict=True)):
        if isinstance(other, Tensor):
            why = _unlike(one, other) or _far(one, other, place, reference)
        else:
            why = "" if one == other else f"is {one}, not {other}"
        if why:
            return f"output {place} {why}"
    return ""


def _unlike(one: Tensor, other: Tensor) -> str:
    if one.shape != other.shape or one.dtype != other.dtype or one.stride() != other.stride():
        return "has another form"
    if other.is_floating_point():
        return "" if _same_odd_numbers(one, other) else "has other infinities or NaNs"
    wrong = int((one != other).sum())
    return "" if wrong <= FEW * other.numel() else f"has {wrong} other elements"


def _far(one: Tensor, other: Tensor, place: int, reference: _Reference) -> str:
    if not other.is_floating_point():
        return ""
    apart = _distance(one, other)
    if apart <= NEAR * _largest(other) or reference.explains(one, other, place):
        return ""
    return f"is off by {apart / _largest(other):.1g}"


class _Reference:
    """The graph in float64, run when it is first needed, and once more with every value moved by a
    rounding."""

    def __init__(
        self, call: fx.GraphModule, given: Sequence[Any], in_tf32: Collection[Any]
    ) -> None:
        self._call, self._given, self._in_tf32 = call, given, in_tf32

    def explains(self, found: Tensor, wanted: Tensor, place: int) -> bool:
        """True if an output is about as far from float64 as PyTorch's, or as rounding moves it."""
        if self._exact is None or self._moved is None:
            return False
        exact, moved = self._exact[place], self._moved[place]
        error = max(_distance(wanted, exact), _distance(moved, exact))
        return _distance(found, exact) <= FARTHER * error + ROUNDINGS * _largest(exact)

    @cached_property
    def _exact(self) -> list[Any] | None:
        return _run(_InDouble(self._call), self._given)

    @cached_property
    def _moved(self) -> list[Any] | None:
        return _run(_Moved(self._call, self._in_tf32), self._given)


def _run(graph: fx.Interpreter, given: Sequence[Any]) -> list[Any] | None:
    """The outputs; None for a graph that cannot run in float64."""
    try:
        with torch.no_grad():
            results = graph.run(*given)
    except Exception:  # of PyTorch's operations, which have no common class
        return None
    return list(results) if isinstance(results, list | tuple) else [results]


class _InDouble(fx.Interpreter):
    """Computes in float64, even where the graph names float32."""

    def placeholder(self, target: Any, args: Any, kwargs: dict[str, Any]) -> Any:
        return _doubled(super().placeholder(target, args, kwargs))

    def get_attr(self, target: Any, args: Any, kwargs: dict[str, Any]) -> Any:
        return _doubled(super().get_attr(target, args, kwargs))

    def call_function(self, target: Any, args: Any, kwargs: dict[str, Any]) -> Any:
        args, kwargs = pytree.tree_map(_doubled, (args, kwargs))
        return super().call_function(target, args, kwargs)


class _Moved(_InDouble):
    """Moves every value as far as rounding to float32 could: each element at random, and all of
    them in the same direction, as when a rounded mean is subtracted. in_tf32: operations whose
    operands are rounded as tensor cores do."""

    def __init__(self, call: fx.GraphModule, in_tf32: Collection[Any]) -> None:
        super().__init__(call)
        self._in_tf32 = in_tf32
        self._generators: dict[torch.device, torch.Generator] = {}

    def run_node(self, n: fx.Node) -> Any:
        found = super().run_node(n)
        return found if n.op == "output" else pytree.tree_map(self._shifted, found)

    def call_function(self, target: Any, args: Any, kwargs: dict[str, Any]) -> Any:
        if target in self._in_tf32:
            args, kwargs = pytree.tree_map(_cut, (args, kwargs))
        return super().call_function(target, args, kwargs)

    def _shifted(self, item: Any) -> Any:
        if not (isinstance(item, Tensor) and item.is_floating_point()):
            return item
        generator = self._generators.get(item.device)
        if generator is None:
            generator = torch.Generator(item.device).manual_seed(0)
            self._generators[item.device] = generator
        drawn = torch.randint(0, 2, item.shape, generator=generator, device=item.device)
        signs = drawn * 2 - 1
        typical = item.square().mean().sqrt()
        return item * (1 + ROUNDING * signs) + ROUNDING * typical


def _doubled(item: Any) -> Any:
    if item is torch.float32:
        return torch.float64
    if isinstance(item, Tensor) and item.dtype is torch.float32:
        return item.detach().double()
    return item


def _cut(item: Any) -> Any:
    """Return a tensor truncated to TF32, which is a larger error than rounding to it."""
    if not (isinstance(item, Tensor) and item.is_floating_point()):
        return item
    return (item.float().view(torch.int32) & ~DROPPED).view(torch.float32).to(item.dtype)


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
