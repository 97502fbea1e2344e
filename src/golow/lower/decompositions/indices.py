"""Elements by their indices, masks, diagonals and triangles; sorting and what follows from it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

aten = torch.ops.aten


def largest_with_place(self: Tensor, dim: int, keepdim: bool = False) -> tuple[Tensor, Tensor]:
    """``max`` over an axis."""
    return aten.amax.default(self, [dim], keepdim), aten.argmax.default(self, dim, keepdim)


def smallest_with_place(self: Tensor, dim: int, keepdim: bool = False) -> tuple[Tensor, Tensor]:
    """``min`` over an axis."""
    return aten.amin.default(self, [dim], keepdim), aten.argmin.default(self, dim, keepdim)


def topk(
    self: Tensor, k: int, dim: int = -1, largest: bool = True, sorted: bool = True
) -> tuple[Tensor, Tensor]:
    """The first of the sorted elements."""
    values, places = aten.sort.default(self, dim, largest)
    return aten.slice.Tensor(values, dim, 0, k), aten.slice.Tensor(places, dim, 0, k)


def place_in_all(place: Any) -> Any:
    """``argmax`` or ``argmin`` over all elements."""

    def decomposed(self: Tensor, dim: int | None = None, keepdim: bool = False) -> Any:
        if dim is not None or keepdim:
            return NotImplemented
        return place(self.reshape(-1), 0)

    return decomposed


def index_add(self: Tensor, dim: int, index: Tensor, source: Tensor, *, alpha: float = 1) -> Any:
    """Rows added to rows."""
    if alpha != 1:
        source = source * alpha
    before: list[Tensor | None] = [None] * (dim % self.dim())
    return aten.index_put.default(self, [*before, index], source, True)


def as_mask(
    self: Tensor, indices: Sequence[Tensor | None], values: Tensor, accumulate: bool = False
) -> Any:
    """``index_put`` by one mask of truths, where the values are the same at all its places."""
    given = [item for item in indices if item is not None]
    before = len(indices) - len(given)
    if len(given) != 1 or given[0].dtype != torch.bool or indices[-1] is not given[0]:
        return NotImplemented
    rest = self.dim() - before - given[0].dim()
    repeats = before == 0 and (values.dim() <= rest or values.shape[0] == 1)
    if not (repeats or values.numel() == 1):
        return NotImplemented
    if values.dim() > rest:
        values = values.reshape(values.shape[values.dim() - rest :])
    mask = given[0].reshape(*given[0].shape, *(1 for _ in range(rest)))
    return torch.where(mask, self + values if accumulate else values.to(self.dtype), self)


def masked_scatter(self: Tensor, mask: Tensor, source: Tensor) -> Tensor:
    """self, with the elements of source in order where the mask is true."""
    whole = mask.expand(self.shape).reshape(-1)
    places = torch.cumsum(whole.to(torch.int64), 0) - 1
    places = aten.clamp_max.default(aten.clamp_min.default(places, 0), source.numel() - 1)
    taken = aten.index_select.default(source.reshape(-1), 0, places)
    return torch.where(whole, taken, self.reshape(-1)).reshape(self.shape)


def masked_scatter_backward(grad_output: Tensor, mask: Tensor, sizes: Sequence[int]) -> Tensor:
    """The gradients at the mask's places, in order, in the shape of the source."""
    whole = mask.expand(grad_output.shape).reshape(-1)
    places = aten.clamp_min.default(torch.cumsum(whole.to(torch.int64), 0) - 1, 0)
    size = torch.Size(sizes).numel()
    zeros = torch.zeros([max(size, whole.numel())], dtype=grad_output.dtype)
    kept = torch.where(whole, grad_output.reshape(-1), 0.0)
    found = aten.scatter_add.default(zeros, 0, places, kept)
    return aten.slice.Tensor(found, 0, 0, size).reshape(sizes)


def _on_diagonal(shape: Sequence[int], offset: int, dim1: int, dim2: int) -> tuple[Any, list[int]]:
    """Two index tensors along a diagonal, and the order of axes that puts its two axes last."""
    dim1, dim2 = dim1 % len(shape), dim2 % len(shape)
    rows, columns = max(0, -offset), max(0, offset)
    count = max(0, min(shape[dim1] - rows, shape[dim2] - columns))
    order = [axis for axis in range(len(shape)) if axis not in (dim1, dim2)]
    steps = torch.arange(count)
    indices = [*(None for _ in order), steps + rows, steps + columns]
    return indices, [*order, dim1, dim2]


def diagonal(self: Tensor, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Tensor:
    """The elements whose second index is the first plus an offset."""
    indices, order = _on_diagonal(self.shape, offset, dim1, dim2)
    return aten.index.Tensor(self.permute(order), indices)


def diagonal_scatter(
    self: Tensor, src: Tensor, offset: int = 0, dim1: int = 0, dim2: int = 1
) -> Tensor:
    """self with that diagonal replaced."""
    indices, order = _on_diagonal(self.shape, offset, dim1, dim2)
    put = aten.index_put.default(self.permute(order).clone(), indices, src)
    return put.permute([order.index(axis) for axis in range(self.dim())]).clone()


def put(self: Tensor, index: Tensor, source: Tensor, accumulate: bool = False) -> Tensor:
    """Elements written by their place in memory."""
    flat = aten.index_put.default(
        self.reshape(-1), [index.reshape(-1)], source.reshape(-1), accumulate
    )
    return flat.reshape(self.shape)


def _triangle(row: int, col: int, offset: int, lower: bool) -> Tensor:
    """The places of a triangle, row by row: sorted, with all others after them."""
    flat = torch.arange(row * col)
    rows, columns = aten.floor_divide.Scalar(flat, col), aten.remainder.Scalar(flat, col)
    inside = (columns - rows <= offset) if lower else (columns - rows >= offset)
    ordered, _ = aten.sort.default(torch.where(inside, flat, flat + row * col))
    difference = range(-row + 1, col)
    count = sum(
        max(0, min(row, col - d) - max(0, -d))
        for d in difference
        if (d <= offset if lower else d >= offset)
    )
    chosen = aten.slice.Tensor(ordered, 0, 0, count)
    return torch.stack([aten.floor_divide.Scalar(chosen, col), aten.remainder.Scalar(chosen, col)])


def lower_triangle(row: int, col: int, offset: int = 0, **_: Any) -> Any:
    """``tril_indices``."""
    return _triangle(row, col, offset, lower=True) if row and col else NotImplemented


def upper_triangle(row: int, col: int, offset: int = 0, **_: Any) -> Any:
    """``triu_indices``."""
    return _triangle(row, col, offset, lower=False) if row and col else NotImplemented


def nth_smallest(self: Tensor, k: int, dim: int = -1, keepdim: bool = False) -> Any:
    """``kthvalue``."""
    if not self.dim():
        return NotImplemented
    values, places = aten.sort.default(self, dim)
    found = [aten.slice.Tensor(item, dim, k - 1, k) for item in (values, places)]
    return tuple(item.clone() if keepdim else aten.squeeze.dim(item, dim) for item in found)


def median(self: Tensor, dim: int, keepdim: bool = False) -> Any:
    """The lower one of the two in the middle, if there are two; NaN if there is one."""
    if not self.dim():
        return NotImplemented
    values, places = nth_smallest(self, (self.shape[dim] + 1) // 2, dim, True)
    if self.dtype.is_floating_point:
        missing = torch.isnan(self).to(torch.int64)
        first = aten.argmax.default(missing, dim, True)
        any_missing = aten.amax.default(missing, [dim], True) > 0
        values = torch.where(any_missing, math.nan, values)
        places = torch.where(any_missing, first, places)
    return tuple(item if keepdim else aten.squeeze.dim(item, dim) for item in (values, places))


def median_of_all(self: Tensor) -> Tensor:
    """Median of all elements."""
    return median(self.reshape(-1), 0)[0]


def searched(
    sorted_sequence: Tensor,
    self: Tensor,
    *,
    out_int32: bool = False,
    right: bool = False,
    side: str | None = None,
    sorter: Tensor | None = None,
) -> Any:
    """``searchsorted``: how many elements stand before the place of each value."""
    if sorter is not None or out_int32 or not self.dim():
        return NotImplemented
    after = right or side == "right"
    sequence, values = sorted_sequence.unsqueeze(-2), self.unsqueeze(-1)
    before = sequence <= values if after else sequence < values
    return before.to(torch.int64).sum(-1)


def combined(
    self: Tensor, dim: int, index: Tensor, src: Tensor, reduce: str, *, include_self: bool = True
) -> Any:
    """``scatter_reduce`` to all but products."""
    if reduce == "prod" or not self.dim() or not self.dtype.is_floating_point:
        return NotImplemented
    for axis in range(src.dim()):
        src = aten.slice.Tensor(src, axis, 0, index.shape[axis])
    if reduce == "amax":
        return _largest_by_index(self, dim % self.dim(), index, src, include_self)
    if reduce == "amin":
        found = _largest_by_index(-self, dim % self.dim(), index, -src, include_self)
        return NotImplemented if found is NotImplemented else -found
    zeros, ones = torch.zeros_like(self), torch.ones(index.shape, dtype=self.dtype)
    count = aten.scatter_add.default(zeros, dim, index, ones)
    start = self if include_self else torch.where(count > 0, 0.0, self)
    total = aten.scatter_add.default(start, dim, index, src)
    if reduce == "sum":
        return total
    return total / aten.clamp_min.default(count + 1 if include_self else count, 1)


def _largest_by_index(
    self: Tensor, dim: int, index: Tensor, src: Tensor, include_self: bool
) -> Any:
    """The largest element of each index: sorted, and those of an index side by side, it is the last
    one of them."""
    others = [axis for axis in range(src.dim()) if axis != dim]
    if not src.shape[dim] or any(self.shape[axis] != src.shape[axis] for axis in others):
        return NotImplemented
    values, places = aten.sort.default(src, dim)
    _, together = aten.sort.default(aten.gather.default(index, dim, places), dim)
    values = aten.gather.default(values, dim, together)
    zeros, ones = torch.zeros_like(self), torch.ones(index.shape, dtype=self.dtype)
    count = aten.scatter_add.default(zeros, dim, index, ones)
    last = torch.cumsum(count.to(torch.int64), dim) - 1
    largest = aten.gather.default(values, dim, aten.clamp_min.default(last, 0))
    combined = torch.maximum(self, largest) if include_self else largest
    return torch.where(count > 0, combined, self)


def scattered_truths(self: Tensor, dim: int, index: Tensor, src: Any) -> Any:
    """``scatter`` of truths, as whole numbers."""
    if self.dtype != torch.bool or not self.dim():
        return NotImplemented
    whole = self.to(torch.int64)
    if isinstance(src, Tensor):
        return aten.scatter.src(whole, dim, index, src.to(torch.int64)) != 0
    return aten.scatter.value(whole, dim, index, int(src)) != 0


DEFINITIONS = {
    "aten.index_put.default": as_mask,
    "aten._unsafe_index_put.default": as_mask,
    "aten.masked_scatter.default": masked_scatter,
    "aten.masked_scatter_backward.default": masked_scatter_backward,
    "aten.diagonal.default": diagonal,
    "aten.diagonal_copy.default": diagonal,
    "aten.diagonal_scatter.default": diagonal_scatter,
    "aten.put.default": put,
    "aten.tril_indices.default": lower_triangle,
    "aten.triu_indices.default": upper_triangle,
    "aten.kthvalue.default": nth_smallest,
    "aten.median.dim": median,
    "aten.median.default": median_of_all,
    "aten.searchsorted.Tensor": searched,
    "aten.scatter_reduce.two": combined,
    "aten.max.dim": largest_with_place,
    "aten.min.dim": smallest_with_place,
    "aten.topk.default": topk,
    "aten.argmax.default": place_in_all(aten.argmax.default),
    "aten.argmin.default": place_in_all(aten.argmin.default),
    "aten.index_add.default": index_add,
    "aten.scatter.src": scattered_truths,
    "aten.scatter.value": scattered_truths,
}
