"""Parts, repetitions and gradients of parts, by slices, concatenations and padding."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

aten = torch.ops.aten


def select(self: Tensor, dim: int, index: int) -> Tensor:
    """One index of an axis, which goes."""
    index = index % self.shape[dim]
    return aten.squeeze.dim(aten.slice.Tensor(self, dim, index, index + 1), dim)


def split_with_sizes(self: Tensor, split_sizes: Sequence[int], dim: int = 0) -> list[Tensor]:
    """Parts of these sizes."""
    parts, start = [], 0
    for size in split_sizes:
        parts.append(aten.slice.Tensor(self, dim, start, start + size))
        start += size
    return parts


def split(self: Tensor, split_size: int, dim: int = 0) -> list[Tensor]:
    """Parts of one size; the last may be smaller."""
    size = self.shape[dim]
    starts = range(0, max(size, 1), max(split_size, 1))
    return [aten.slice.Tensor(self, dim, s, min(s + split_size, size)) for s in starts]


def unbind(self: Tensor, dim: int = 0) -> list[Tensor]:
    """Every index of an axis."""
    return [select(self, dim, index) for index in range(self.shape[dim])]


def slice_backward(
    grad_output: Tensor, input_sizes: Sequence[int], dim: int, start: int, end: int, step: int
) -> Any:
    """The gradient with zeros around it."""
    rank, size = len(input_sizes), input_sizes[dim]
    begin, stop, _ = slice(start, end).indices(size)
    if step != 1:
        return _spread(grad_output, size, dim % rank, begin, step)
    return _zeros_around(grad_output, dim % rank, begin, size - max(begin, stop))


def _spread(part: Tensor, size: int, dim: int, start: int, step: int) -> Any:
    """A part as every ``step``-th element of an axis of that size, from ``start`` on, and zeros
    elsewhere: a column of a table with ``step`` columns, whose rows follow one another."""
    column, rest = start % step, start - start % step
    table = _zeros_around(part.unsqueeze(dim + 1), dim + 1, column, step - 1 - column)
    rows = table.flatten(dim, dim + 1)
    return _zeros_around(rows, dim, rest, size - rest - rows.shape[dim])


def _zeros_around(part: Tensor, dim: int, before: int, after: int) -> Any:
    """A tensor with zeros before and after it along an axis; negative numbers cut it."""
    if before == after == 0:
        return part
    sides = [0, 0] * (part.dim() - 1 - dim)
    return aten.constant_pad_nd.default(part, [*sides, before, after], 0.0)


def select_backward(grad_output: Tensor, input_sizes: Sequence[int], dim: int, index: int) -> Any:
    """The gradient with zeros around it."""
    index = index % input_sizes[dim]
    dim = dim % len(input_sizes)
    return slice_backward(grad_output.unsqueeze(dim), input_sizes, dim, index, index + 1, 1)


def slice_scatter(
    self: Tensor,
    src: Tensor,
    dim: int = 0,
    start: int | None = None,
    end: int | None = None,
    step: int = 1,
) -> Any:
    """self with a part replaced."""
    if step != 1:
        return NotImplemented
    size = self.shape[dim]
    begin, stop, _ = slice(start, end).indices(size)
    before = aten.slice.Tensor(self, dim, 0, begin)
    after = aten.slice.Tensor(self, dim, max(begin, stop), size)
    parts = [part for part in (before, src, after) if part.shape[dim]] or [src]
    return torch.cat(parts, dim) if len(parts) > 1 else parts[0].clone()


def repeat(self: Tensor, repeats: Sequence[int]) -> Tensor:
    """Copies side by side along each axis."""
    lack = len(repeats) - self.dim()
    shape = [1] * lack + list(self.shape)
    pairs = [n for size in shape for n in (1, size)]
    wide = [n for times, size in zip(repeats, shape, strict=True) for n in (times, size)]
    whole = [times * size for times, size in zip(repeats, shape, strict=True)]
    return self.reshape(pairs).expand(wide).reshape(whole)


def roll(self: Tensor, shifts: Sequence[int], dims: Sequence[int] = ()) -> Any:
    """Each axis cut in two, and its parts exchanged."""
    if not dims:
        flat = roll(self.reshape(-1), shifts, [0])
        return flat.reshape(self.shape)
    for shift, dim in zip(shifts, dims, strict=True):
        size = self.shape[dim]
        cut = (size - shift) % size if size else 0
        if cut:
            parts = [aten.slice.Tensor(self, dim, cut, size), aten.slice.Tensor(self, dim, 0, cut)]
            self = torch.cat(parts, dim)
    return self.clone()


def _replicated(size: int, before: int, new: int) -> Tensor:
    """For each place of a padded axis the place of what it repeats."""
    places = torch.arange(new) - before
    return aten.clamp_max.default(aten.clamp_min.default(places, 0), size - 1)


def replication_backward(grad_output: Tensor, self: Tensor, padding: Sequence[int]) -> Tensor:
    """The gradients of all copies of an element, added up."""
    axes = len(padding) // 2
    outer = self.dim() - axes
    places: list[Tensor | None] = [None] * outer
    for index in range(axes):
        size = self.shape[outer + index]
        before = padding[2 * (axes - 1 - index)]
        new = grad_output.shape[outer + index]
        column = _replicated(size, before, new)
        places.append(column.reshape([-1] + [1] * (axes - 1 - index)))
    zeros = torch.zeros(self.shape, dtype=self.dtype)
    return aten.index_put.default(zeros, places, grad_output, True)


def copied_over(self: Tensor, src: Tensor, non_blocking: bool = False) -> Tensor:
    """``copy``: the other tensor in this one's shape and type."""
    return src.to(self.dtype).expand(self.shape).clone()


def circular(self: Tensor, pad: Sequence[int]) -> Tensor:
    """Each padded axis continued with its other end."""
    for index in range(len(pad) // 2):
        axis, before, after = self.dim() - 1 - index, pad[2 * index], pad[2 * index + 1]
        size = self.shape[axis]
        parts = [
            aten.slice.Tensor(self, axis, size - before, size) if before > 0 else None,
            aten.slice.Tensor(self, axis, max(0, -before), size + min(0, after)),
            aten.slice.Tensor(self, axis, 0, after) if after > 0 else None,
        ]
        self = torch.cat([part for part in parts if part is not None], axis)
    return self


def pad(self: Tensor, pad: Sequence[int], mode: str = "constant", value: Any = None) -> Any:
    """``pad`` around; the other modes have separate definitions."""
    return circular(self, pad) if mode == "circular" else NotImplemented


def _in_order(
    self: Tensor, size: Sequence[int], stride: Sequence[int], storage_offset: int | None
) -> bool:
    """True if the strides name all elements in their order."""
    wanted, step = [], 1
    for length in reversed(size):
        wanted.append(step)
        step *= length
    pairs = zip(size, stride, reversed(wanted), strict=True)
    alike = all(length == 1 or own == ordered for length, own, ordered in pairs)
    return not storage_offset and step == self.numel() and alike


def _places(size: Sequence[int], stride: Sequence[int], offset: int | None) -> Tensor:
    """For each element its place among all elements, in a row."""
    places = torch.full([1] * len(size), offset or 0)
    for axis, (length, step) in enumerate(zip(size, stride, strict=True)):
        shape = [-1 if other == axis else 1 for other in range(len(size))]
        places = places + (torch.arange(length) * step).reshape(shape)
    return places.reshape(-1)


def as_strided(
    self: Tensor, size: Sequence[int], stride: Sequence[int], storage_offset: int | None = None
) -> Tensor:
    """Elements by their places, of a tensor whose elements are in their order."""
    if _in_order(self, size, stride, storage_offset):
        return self.reshape(size)
    places = _places(size, stride, storage_offset)
    return aten.index_select.default(self.reshape(-1), 0, places).reshape(size)


def as_strided_scatter(
    self: Tensor,
    src: Tensor,
    size: Sequence[int],
    stride: Sequence[int],
    storage_offset: int | None = None,
) -> Tensor:
    """The elements at these places replaced by those of ``src``."""
    if _in_order(self, size, stride, storage_offset):
        return src.reshape(self.shape)
    places = _places(size, stride, storage_offset)
    flat = aten.scatter.src(self.reshape(-1), 0, places, src.reshape(-1))
    return flat.reshape(self.shape)


def unfold(self: Tensor, dimension: int, size: int, step: int) -> Any:
    """Windows along an axis; their elements become the last axis."""
    if not self.dim():
        return NotImplemented
    axis = dimension % self.dim()
    count = (self.shape[axis] - size) // step + 1
    places = (torch.arange(count) * step).unsqueeze(1) + torch.arange(size)
    taken = aten.index_select.default(self, axis, places.reshape(-1))
    taken = taken.reshape(*self.shape[:axis], count, size, *self.shape[axis + 1 :])
    order = [a for a in range(taken.dim()) if a != axis + 1]
    return taken.permute([*order, axis + 1])


def unfold_backward(
    grad_in: Tensor, input_sizes: Sequence[int], dim: int, size: int, step: int
) -> Any:
    """Each window's gradients, added where they came from."""
    if not input_sizes:
        return NotImplemented
    axis = dim % len(input_sizes)
    count = grad_in.shape[axis]
    places = (torch.arange(count) * step).unsqueeze(1) + torch.arange(size)
    moved = grad_in.permute([*range(axis + 1), grad_in.dim() - 1,
                             *range(axis + 1, grad_in.dim() - 1)])  # fmt: skip
    flat = moved.reshape(*moved.shape[:axis], count * size, *moved.shape[axis + 2 :])
    zeros = torch.zeros(input_sizes, dtype=grad_in.dtype)
    return aten.index_add.default(zeros, axis, places.reshape(-1), flat)


DEFINITIONS = {
    "aten.unfold.default": unfold,
    "aten.unfold_backward.default": unfold_backward,
    "aten.as_strided.default": as_strided,
    "aten.as_strided_scatter.default": as_strided_scatter,
    "aten.pad.default": pad,
    "aten._pad_circular.default": circular,
    "aten.copy.default": copied_over,
    "aten.replication_pad1d_backward.default": replication_backward,
    "aten.replication_pad2d_backward.default": replication_backward,
    "aten.replication_pad3d_backward.default": replication_backward,
    "aten.select.int": select,
    "aten.split_with_sizes.default": split_with_sizes,
    "aten.split.Tensor": split,
    "aten.unbind.int": unbind,
    "aten.slice_backward.default": slice_backward,
    "aten.select_backward.default": select_backward,
    "aten.slice_scatter.default": slice_scatter,
    "aten.repeat.default": repeat,
    "aten.roll.default": roll,
}
