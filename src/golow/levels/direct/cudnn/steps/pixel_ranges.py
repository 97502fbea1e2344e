"""Ranges of wider images: the channels of each pixel are adjacent, and those of other ranges are
between pixels."""

from __future__ import annotations

from typing import TYPE_CHECKING

from golow.levels.direct.cudnn.problems.element_types import ITEM_BYTES
from golow.levels.direct.cudnn.problems.layouts import pixel_pitch
from golow.levels.direct.cudnn.shared_kernels.geometry import channel_vector
from golow.levels.direct.cudnn.steps.built_plan import Tensor
from golow.lower.ir.graph import Ref

if TYPE_CHECKING:
    from golow.levels.direct.cudnn.build.builder import Builder


def range_pitch(tensor: Tensor, shape: tuple[int, ...], dtype: str) -> int | None:
    """Elements from one pixel to the next of images of this shape and type, or from one row of a
    matrix to the next: 0 if there is nothing between them, None if they are in another order, or if
    a vector of channels is not aligned."""
    if tensor.shape != shape or tensor.dtype != dtype or 0 in shape:
        return None
    pitch, vector = pixel_pitch(tensor.layout, shape), channel_vector(dtype, shape[1])
    offset = tensor.offset // ITEM_BYTES[dtype]
    if pitch is None or pitch % vector or offset % vector:
        return None
    return 0 if pitch == shape[1] else pitch


def seen_range(
    build: Builder, reference: Ref, shape: tuple[int, ...], dtype: str
) -> tuple[Tensor, int] | None:
    """A value as it is stored, and its pitch, as `range_pitch`; None for what has none. A view that
    is still to be copied stays so."""
    if build.values.folded(reference).strides is None:
        return None
    tensor = build.values.view(reference)
    pitch = range_pitch(tensor, shape, dtype)
    return None if pitch is None else (tensor, pitch)
