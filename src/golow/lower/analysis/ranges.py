"""Ranges that divide an axis of a tensor, and where they are in a view of it."""

from __future__ import annotations

import math
from typing import NamedTuple

import msgspec

from golow.lower.operators.permute import Permute
from golow.lower.operators.reshape import Reshape

View = Reshape | Permute


def shape_after(view: View, shape: tuple[int, ...]) -> tuple[int, ...]:
    """The shape of a view of a tensor of that shape."""
    if isinstance(view, Permute):
        return tuple(shape[axis] for axis in view.order)
    return tuple(view.shape)


class Ranges(NamedTuple):
    """A tensor's shape, and the sizes of the ranges of an axis, which together are the axis."""

    shape: tuple[int, ...]
    axis: int
    sizes: tuple[int, ...]

    def part(self, size: int) -> tuple[int, ...]:
        """The shape of a range of that size."""
        return (*self.shape[: self.axis], size, *self.shape[self.axis + 1 :])


def seen(view: View, ranges: Ranges) -> Ranges | None:
    """The ranges in a view of the tensor; None if they are not ranges of one of its axes, as where
    the axis was joined to be the inner part of another one."""
    shape, axis = ranges.shape, ranges.axis
    if isinstance(view, Permute):
        return Ranges(shape_after(view, shape), view.order.index(axis), ranges.sizes)
    if 0 in shape:
        return None
    before, each = math.prod(shape[:axis]), math.prod(shape[axis + 1 :])
    for place in range(len(view.shape)):
        inner = math.prod(view.shape[place + 1 :])
        whole = all(size * each % inner == 0 for size in ranges.sizes)
        if math.prod(view.shape[:place]) == before and whole:
            sizes = tuple(size * each // inner for size in ranges.sizes)
            return Ranges(tuple(view.shape), place, sizes)
    return None


def of_part(view: View, after: Ranges, index: int) -> View:
    """View of one of the ranges alone. after: where `seen` found them."""
    if isinstance(view, Permute):
        return view
    return msgspec.structs.replace(view, shape=after.part(after.sizes[index]))
