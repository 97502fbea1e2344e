"""Views of cuDNN's tensors in the parts of their axes."""

from __future__ import annotations

from typing import TypeAlias

from golow.levels.direct import split_axes
from golow.levels.direct.cudnn.steps.built_plan import Tensor
from golow.levels.direct.split_axes import Part

Folded: TypeAlias = split_axes.Folded[Tensor]


def folded(tensor: Tensor) -> Folded:
    """The tensor as a view of itself."""
    steps = zip(tensor.shape, tensor.layout.strides(tensor.shape), strict=True)
    return Folded(tensor, tuple((Part(n, step),) if n != 1 else () for n, step in steps))


def of_rows(view: Folded, result: Tensor, step: int, width: int) -> Folded:
    """The result of a function of rows, one row of it for each row in memory, seen in the order of
    the view's rows. step: between the view's rows; width: of the result, whose rows in memory may
    be longer."""
    pitch = result.shape[-1]
    outer = [
        tuple(Part(part.size, part.step // step * pitch) for part in axis)
        for axis in view.axes[:-1]
    ]
    return Folded(result, (*outer, (Part(width, 1),) if width != 1 else ()))
