"""Running products, extremes and logarithms of sums along an axis.

In round k each element is combined with the one 2^k before it, so that an axis of n elements takes
log2(n) rounds (Hillis and Steele 1986, "Data parallel algorithms").
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

aten = torch.ops.aten

Combine = Callable[[Tensor, Tensor], Tensor]


def _scanned(x: Tensor, axis: int, combine: Combine, neutral: float) -> Tensor:
    step = 1
    while step < x.shape[axis]:
        x = combine(_earlier(x, axis, step, neutral), x)
        step *= 2
    return x.clone()


def _earlier(x: Tensor, axis: int, step: int, neutral: float) -> Tensor:
    """The elements ``step`` before, and something neutral before the first."""
    sides = [0, 0] * (x.dim() - 1 - axis)
    kept = aten.slice.Tensor(x, axis, 0, x.shape[axis] - step)
    return aten.constant_pad_nd.default(kept, [*sides, step, 0], neutral)


def product(self: Tensor, dim: int, *, dtype: torch.dtype | None = None) -> Any:
    """``cumprod``."""
    whole = dtype or (self.dtype if self.dtype.is_floating_point else torch.int64)
    if not self.dim():
        return self.to(whole).clone()
    return _scanned(self.to(whole), dim % self.dim(), torch.mul, 1)


def _extreme(self: Tensor, dim: int, sign: int) -> Any:
    """The extreme so far and its place: of equal ones the last, and NaN before all."""
    if not self.dim() or not self.dtype.is_floating_point:
        return NotImplemented
    axis, step = dim % self.dim(), 1
    shape = [-1 if a == axis else 1 for a in range(self.dim())]
    places = torch.arange(self.shape[axis]).reshape(shape).expand(self.shape).clone()
    x = self
    while step < x.shape[axis]:
        other = _earlier(x, axis, step, -sign * math.inf)
        before = other > x if sign > 0 else other < x
        unordered = torch.logical_and(torch.isnan(other), torch.logical_not(torch.isnan(x)))
        before = torch.logical_or(before, unordered)
        # The values before the first element never win.
        exists = torch.arange(x.shape[axis]).reshape(shape) >= step
        before = torch.logical_and(before, exists)
        places = torch.where(before, _earlier(places, axis, step, 0), places)
        x = torch.where(before, other, x)
        step *= 2
    return x.clone(), places


def largest(self: Tensor, dim: int) -> Any:
    """``cummax``."""
    return _extreme(self, dim, 1)


def smallest(self: Tensor, dim: int) -> Any:
    """``cummin``."""
    return _extreme(self, dim, -1)


def _log_of_sum(a: Tensor, b: Tensor) -> Tensor:
    """log(exp(a) + exp(b)), also of infinities."""
    high = torch.maximum(a, b)
    distance = torch.where(torch.isinf(high), 0.0, torch.minimum(a, b) - high)
    return high + torch.log1p(torch.exp(distance))


def log_of_sum(self: Tensor, dim: int) -> Any:
    """``logcumsumexp``."""
    if not self.dim():
        return self.clone()
    return _scanned(self, dim % self.dim(), _log_of_sum, -math.inf)


DEFINITIONS = {
    "aten.cumprod.default": product,
    "aten.cummax.default": largest,
    "aten.cummin.default": smallest,
    "aten.logcumsumexp.default": log_of_sum,
}
