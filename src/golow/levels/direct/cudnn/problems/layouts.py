"""Layouts of tensors in GPU memory, and conversion to and from them on the host.

Images, volumes and the weights of convolutions have their channels innermost (NHWC and KRSC),
possibly padded with channels that stay zero; everything else has PyTorch's order. A transposed
matrix is read as its transpose. A view of other memory has any strides.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal, NamedTuple

import numpy as np
from ml_dtypes import bfloat16, float8_e4m3fn

from golow.levels.direct.cudnn.problems.element_types import ITEM_BYTES
from golow.lower.operators.quantize import E4M3

Order = Literal["rows", "channels_last", "transposed", "strided"]

# Bytes, for every tensor in the plan, including half-precision copies at half the plan's alignment.
TENSOR_ALIGNMENT = 64
UNIT = 16  # bytes that tensor cores load at a time; rows of products begin at multiples of it

IMAGES = (4, 5)  # axes of a batch of images, and of volumes

NUMPY_TYPES = {
    "float32": np.float32,
    "float16": np.float16,
    "bfloat16": bfloat16,
    "int64": np.int64,
    "int32": np.int32,
    "bool": np.bool_,
    "uint8": np.uint8,
    "int8": np.int8,
    E4M3: float8_e4m3fn,
}
TO_FLOAT32 = ("bfloat16", "float16", E4M3)  # as which the host reads them


class Layout(NamedTuple):
    """Storage type and order. channels: those in memory for ``channels_last``, with padding.
    transposed: the last two axes are swapped in memory. steps: of a ``strided`` view, the elements
    from one index to the next, for each axis."""

    dtype: str
    order: Order = "rows"
    channels: int = 0
    steps: tuple[int, ...] = ()

    def __str__(self) -> str:
        return self.dtype if self.order == "rows" else f"{self.dtype}:{self.order}"

    def elements(self, shape: Sequence[int]) -> int:
        """Number of elements in memory, including padding; of a view, the number that it shows."""
        if self.order != "channels_last":
            return math.prod(shape)
        return shape[0] * math.prod(shape[2:]) * self.channels

    def extent(self, shape: Sequence[int]) -> int:
        """Elements in memory from its first to its last one, with what is between."""
        if self.order != "strided" or 0 in shape:
            return self.elements(shape)
        return 1 + sum((size - 1) * step for size, step in zip(shape, self.steps, strict=True))

    def bytes(self, shape: Sequence[int]) -> int:
        """Size in memory, in bytes."""
        return self.elements(shape) * ITEM_BYTES[self.dtype]

    def strides(self, shape: Sequence[int]) -> tuple[int, ...]:
        """Elements from one index to the next, for each axis of the shape."""
        if self.order == "channels_last":
            steps = [self.channels * math.prod(shape[axis + 1 :]) for axis in range(1, len(shape))]
            return (steps[0], 1, *steps[1:])
        if self.order == "strided":
            return self.steps
        rows = [math.prod(shape[axis + 1 :]) for axis in range(len(shape))]
        if self.order == "transposed":
            rows[-2:] = 1, shape[-2]
        return tuple(rows)


def layout_of(dtype: str, shape: Sequence[int], strides: Sequence[int]) -> Layout:
    """The layout with these strides: a dense one if there is one that gives the same bytes."""
    view = Layout(dtype, "strided", steps=tuple(strides))
    dense = [Layout(dtype)]
    if len(shape) in IMAGES:
        dense.append(Layout(dtype, "channels_last", shape[1]))
    if len(shape) > 1:
        dense.append(Layout(dtype, "transposed"))
    return next((layout for layout in dense if same_memory(shape, layout, view)), view)


def dense(layout: Layout, shape: Sequence[int]) -> Layout:
    """The layout itself; for a view the dense one in which a copy of it should be stored: images
    whose channels are adjacent keep them so, everything else is in PyTorch's order."""
    if layout.order != "strided":
        return layout
    if len(shape) in IMAGES and layout.steps[1] == 1 and layout.steps[-1] != 1:
        return Layout(layout.dtype, "channels_last", shape[1])
    return Layout(layout.dtype)


def pitch_of(columns: int, dtype: str) -> int:
    """Elements from one row to the next that begin at multiples of 16 bytes."""
    each = 16 // ITEM_BYTES[dtype]
    return -(-columns // each) * each


def pitch_in(layout: Layout, shape: Sequence[int]) -> int | None:
    """Elements from one row of the last axis to the next, if all rows are in PyTorch's order as far
    from one another; None otherwise."""
    *outer, last = layout.strides(shape)
    pitch = outer[-1] if outer else shape[-1]
    regular = same_memory(shape, with_pitch(layout.dtype, shape, pitch), layout)
    return pitch if regular and last == 1 and pitch >= shape[-1] else None


def pixel_pitch(layout: Layout, shape: Sequence[int]) -> int | None:
    """Elements from one pixel of images [N, C, H, W], or one row of a matrix [N, C], to the next,
    if all are in the order of NHWC, as far from one another, and their channels are adjacent; None
    otherwise."""
    strides = layout.strides(shape)
    outer = (*range(len(shape) - 1, 1, -1), 0)  # from the innermost axis to the images
    pitch = next((strides[axis] for axis in outer if shape[axis] > 1), shape[1])
    steps = [1] * len(shape)
    step = pitch
    for axis in outer:
        steps[axis] = step
        step *= shape[axis]
    regular = same_memory(shape, Layout(layout.dtype, "strided", steps=tuple(steps)), layout)
    return pitch if regular and pitch >= shape[1] else None


def with_pitch(dtype: str, shape: Sequence[int], pitch: int) -> Layout:
    """Rows of the last axis with this many elements from one to the next, in PyTorch's order."""
    outer = [pitch * math.prod(shape[axis + 1 : -1]) for axis in range(len(shape) - 1)]
    return layout_of(dtype, shape, (*outer, 1))


def fills_memory(layout: Layout, shape: Sequence[int]) -> bool:
    """True if its elements are adjacent without gaps, in any order of the axes."""
    axes = sorted((s, n) for n, s in zip(shape, layout.strides(shape), strict=True) if n > 1)
    step = 1
    for stride, size in axes:
        if stride != step:
            return False
        step *= size
    return True


def is_rows_with_gaps(shape: Sequence[int], layout: Layout) -> bool:
    """True if a view is in PyTorch's order but for some elements between rows, at most a hundredth
    of all."""
    if layout.order != "strided" or layout.steps[-1:] != (1,):
        return False
    pairs = zip(layout.steps, layout.steps[1:], shape[1:], strict=False)
    in_order = all(step >= inner * size for step, inner, size in pairs)
    return in_order and 100 * layout.extent(shape) <= 101 * layout.elements(shape)


def same_memory(shape: Sequence[int], one: Layout, other: Layout) -> bool:
    """True if both layouts give the same bytes."""
    if one.dtype != other.dtype or one.elements(shape) != other.elements(shape):
        return False
    pairs = zip(shape, one.strides(shape), other.strides(shape), strict=True)
    return all(first == second for size, first, second in pairs if size > 1)


def packed(array: np.ndarray, layout: Layout) -> np.ndarray:
    """Convert an array in PyTorch's order to the layout in memory, as one axis; 16-bit floats are
    rounded to the nearest, ties to even."""
    if layout.order == "channels_last":
        padding = [(0, 0)] * array.ndim
        padding[1] = (0, layout.channels - array.shape[1])
        array = np.moveaxis(np.pad(array, padding), 1, -1)
    elif layout.order == "transposed":
        array = array.swapaxes(-1, -2)
    flat = np.ascontiguousarray(array).reshape(-1)
    return flat.astype(NUMPY_TYPES[layout.dtype], copy=False)


def unpacked(flat: np.ndarray, shape: Sequence[int], layout: Layout) -> np.ndarray:
    """Invert `packed`, over the same memory where the type allows: narrower floats become
    float32."""
    if layout.dtype in TO_FLOAT32:
        flat = flat.astype(np.float32)
    if layout.order == "channels_last":
        images, channels, *size = shape
        image = flat.reshape(images, *size, layout.channels)[..., :channels]
        return np.moveaxis(image, -1, 1)
    if layout.order == "transposed":
        stored = flat.reshape(*shape[:-2], shape[-1], shape[-2])
        return stored.swapaxes(-1, -2)
    if layout.order == "strided":
        steps = [flat.itemsize * step for step in layout.steps]
        return np.lib.stride_tricks.as_strided(flat, shape, steps)
    return flat.reshape(tuple(shape))
