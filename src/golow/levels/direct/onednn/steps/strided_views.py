"""Tensors as generated kernels see them: strides at a result's indices, whatever the layout."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from golow.levels.direct.kernel_views import View
from golow.levels.direct.onednn.bindings.library import Descriptor
from golow.levels.direct.onednn.steps.built_plan import Tensor


class Seen(NamedTuple):
    """A tensor, and the sizes of the axes that its strides are about: a blocked axis is two."""

    view: View
    sizes: tuple[int, ...]


def fits(layout: Descriptor) -> bool:
    """True if a kernel can follow this layout: strides, or one block that divides its axis."""
    if len(layout.blocks) > 1:
        return False
    return all(layout.shape[axis] % size == 0 for axis, size in layout.blocks)


def follows(tensor: Tensor, layout: Descriptor) -> bool:
    """True if a kernel of this layout can read the tensor as it is."""
    own = tensor.descriptor
    if own is None or not own.blocks:
        return True
    return own.blocks == layout.blocks and len(own.shape) == len(layout.shape) and fits(own)


def seen(tensor: Tensor, layout: Descriptor) -> Seen:
    """Return the tensor at the indices of a result of this layout, over which it broadcasts."""
    shape, blocks = layout.shape, layout.blocks
    own = tensor.descriptor
    strides = row_major(tensor.shape) if own is None else own.strides
    sizes = tensor.shape if own is None else own.shape
    strides = (*[0] * (len(shape) - len(sizes)), *strides)
    sizes = (*[1] * (len(shape) - len(sizes)), *sizes)
    strides = tuple(0 if n == 1 else step for n, step in zip(sizes, strides, strict=True))
    start = 0 if own is None else own.offset
    if not blocks:
        return Seen(View(tensor.dtype, strides, start), shape)
    [(axis, block)] = blocks
    if own is not None and own.blocks:  # its strides go from block to block
        inner, between = 1, own.strides[axis]
    else:
        inner, between = strides[axis], strides[axis] * block
    split = (*strides[:axis], between, *strides[axis + 1 :], inner)
    whole = (*shape[:axis], shape[axis] // block, *shape[axis + 1 :], block)
    return Seen(View(tensor.dtype, split, start), whole)


def dense(shape: tuple[int, ...], strides: Sequence[int]) -> Descriptor:
    """Return a layout without gaps, with the axes in the order of these strides."""
    found, step = [0] * len(shape), 1
    for axis in sorted(range(len(shape)), key=lambda i: (strides[i], -i)):
        found[axis] = step
        step *= shape[axis]
    return Descriptor.strided(shape, found).settled()


def row_major(shape: Sequence[int]) -> tuple[int, ...]:
    """Return the strides of PyTorch's contiguous tensors."""
    return tuple(math.prod(shape[axis + 1 :]) for axis in range(len(shape)))
