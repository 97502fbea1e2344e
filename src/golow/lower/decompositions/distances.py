"""Distances between all rows of two matrices, or of one, and products of three tensors."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from golow.lower.decompositions.indices import upper_triangle

aten = torch.ops.aten


def _norm(x: Tensor, p: float) -> Tensor:
    """Norm along the last axis."""
    size = torch.abs(x)
    if p == 0:
        return (size != 0).to(x.dtype).sum(-1)
    if p == 1:
        return size.sum(-1)
    if p == 2:
        return torch.sqrt((x * x).sum(-1))
    if p == math.inf:
        return aten.amax.default(size, [-1])
    return (size**p).sum(-1) ** (1 / p)


def _norm_backward(g: Tensor, x: Tensor, norm: Tensor, p: float) -> Tensor:
    """Zero where the norm is, as in PyTorch. g and norm: without the last axis."""
    g, norm = g.unsqueeze(-1), norm.unsqueeze(-1)
    sign, size = torch.sign(x), torch.abs(x)
    if p == 0:
        return torch.zeros_like(x)
    if p == 1:
        return g * sign
    if p == math.inf:
        return g * sign * (size == norm).to(x.dtype)
    whole = torch.where(norm == 0, 1.0, norm)
    if p == 2:
        return torch.where(norm == 0, 0.0, g * x / whole)
    ratio = torch.where(size == 0, 0.0, (torch.where(size == 0, 1.0, size) / whole) ** (p - 1))
    return torch.where(norm == 0, 0.0, g * sign * ratio)


def all_pairs(x1: Tensor, x2: Tensor, p: float, compute_mode: int | None) -> Tensor:
    """``cdist``: [..., P, M] and [..., R, M] to [..., P, R]. From the differences, which are exact
    where a product of the matrices would cancel."""
    return _norm(x1.unsqueeze(-2) - x2.unsqueeze(-3), p)


def all_pairs_backward(grad: Tensor, x1: Tensor, x2: Tensor, p: float, cdist: Tensor) -> Tensor:
    """The gradient of the first matrix."""
    difference = x1.unsqueeze(-2) - x2.unsqueeze(-3)
    return _norm_backward(grad, difference, cdist, p).sum(-2)


def own_pairs(self: Tensor, p: float = 2) -> Any:
    """``pdist``: of the rows of one matrix, each pair once."""
    if self.shape[0] < 2:
        return NotImplemented
    first, second = _pairs(self.shape[0])
    return _norm(aten.index_select.default(self, 0, first) -
                 aten.index_select.default(self, 0, second), p)  # fmt: skip


def own_pairs_backward(grad: Tensor, self: Tensor, p: float, pdist: Tensor) -> Any:
    """Its gradient: each pair adds to one row and takes from the other."""
    if self.shape[0] < 2:
        return NotImplemented
    first, second = _pairs(self.shape[0])
    rows = [aten.index_select.default(self, 0, places) for places in (first, second)]
    found = _norm_backward(grad, rows[0] - rows[1], pdist, p)
    zeros = torch.zeros_like(self)
    added = aten.index_add.default(zeros, 0, first, found)
    return added - aten.index_add.default(zeros, 0, second, found)


def _pairs(count: int) -> tuple[Tensor, Tensor]:
    both = upper_triangle(count, count, 1)
    return aten.select.int(both, 0, 0), aten.select.int(both, 0, 1)


def of_three(
    i1: Tensor,
    i2: Tensor,
    i3: Tensor,
    expand1: Sequence[int],
    expand2: Sequence[int],
    expand3: Sequence[int],
    sumdim: Sequence[int],
    unroll_dim: int = 1,
) -> Tensor:
    """``nn.Bilinear``: the product of three tensors with further axes, summed over some."""
    wide = []
    for x, axes in ((i1, expand1), (i2, expand2), (i3, expand3)):
        for axis in sorted(axes):
            x = x.unsqueeze(axis)
        wide.append(x)
    return ((wide[0] * wide[2]) * wide[1]).sum(list(sumdim))


DEFINITIONS = {
    "aten._cdist_forward.default": all_pairs,
    "aten._cdist_backward.default": all_pairs_backward,
    "aten._pdist_forward.default": own_pairs,
    "aten._pdist_backward.default": own_pairs_backward,
    "aten._trilinear.default": of_three,
}
