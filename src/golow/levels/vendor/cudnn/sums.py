"""Steps that sum along an axis, for reductions and for the gradient of a bias."""

from __future__ import annotations

from typing import TYPE_CHECKING

from golow.levels.vendor.cudnn.kernels.reduction import reduction
from golow.levels.vendor.cudnn.layouts import Layout
from golow.levels.vendor.cudnn.steps import Tensor

if TYPE_CHECKING:
    from golow.levels.vendor.cudnn.builder import Builder


def add_up(
    build: Builder,
    tensor: Tensor,
    sizes: tuple[int, int, int],
    index: int,
    factor: float = 1.0,
    pitch: int | None = None,
) -> None:
    """Define the current node's value of that index: sums of the tensor, seen as [outer, reduced,
    inner], over its middle axis. The gradient of a bias is float32 for any type of activations.
    pitch: elements from one row to the next, if there are gaps."""
    value = build.output(index)
    exact = build.is_gradient(value.name) or not value.shape
    dtype = "float32" if exact else tensor.dtype
    result = build.result(index, Layout(dtype))
    found = reduction(tensor.dtype, dtype, *sizes, factor, pitch)
    if found.second is None:
        build.kernel(found.first, [tensor], [result])
    else:
        partial = build.scratch(found.partial)
        build.kernel(found.first, [tensor], [partial])
        build.kernel(found.second, [partial], [result])
    build.define(index, result)
