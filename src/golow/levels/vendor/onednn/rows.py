"""Tensors as rows: the last axis lies together, and the other axes count the rows."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from golow.levels.vendor.onednn.library import Descriptor
from golow.levels.vendor.onednn.steps import Tensor

if TYPE_CHECKING:
    from golow.levels.vendor.onednn.builder import Builder
    from golow.lower.graph import Ref


def in_rows(
    build: Builder, reference: Ref, columns: int, *, any_order: bool = True
) -> tuple[Tensor, Descriptor]:
    """Return a value as [rows, its last axis], and the layout of a result that has a row of so many
    columns for each of them.

    The rows stay in the order in which they lie in memory, such as that of a transposed batch, so
    that nothing is copied. any_order: otherwise they are row-major.
    """
    tensor = build.tensor(reference)
    order = _order(tensor.layout) if any_order else None
    if order is None:
        tensor = build.plain(reference)
        order = tuple(range(len(tensor.shape) - 1))
    *leading, width = tensor.layout.shape
    flat = tensor._replace(descriptor=Descriptor.plain((math.prod(leading), width)))
    strides, step = [0] * len(leading), columns
    for axis in reversed(order):
        strides[axis] = step
        step *= leading[axis]
    return flat, Descriptor.strided((*leading, columns), (*strides, 1))


def _order(layout: Descriptor) -> tuple[int, ...] | None:
    """The leading axes, the outermost in memory first; None if rows do not lie one after the
    other."""
    if layout.blocks or layout.strides[-1] != 1:
        return None
    *leading, step = layout.shape
    wide = [axis for axis, size in enumerate(leading) if size > 1]
    order = sorted(wide, key=lambda axis: -layout.strides[axis])
    for axis in reversed(order):
        if layout.strides[axis] != step:
            return None
        step *= leading[axis]
    if order == wide:  # row-major, whatever the strides of axes of size 1 say
        return tuple(range(len(leading)))
    return (*(axis for axis in range(len(leading)) if axis not in wide), *order)
