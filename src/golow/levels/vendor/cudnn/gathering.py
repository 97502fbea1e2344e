"""Steps that copy part of a tensor, or all of it with its axes permuted."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from golow.levels.vendor.cudnn.kernels.strided import AXES, strided_copy
from golow.levels.vendor.cudnn.layouts import Layout
from golow.levels.vendor.cudnn.steps import Tensor
from golow.levels.vendor.implementation import Question

if TYPE_CHECKING:
    from golow.levels.vendor.cudnn.builder import Builder


def gather(build: Builder, tensor: Tensor, strides: Sequence[int], start: int = 0) -> None:
    """Define the current node's value: a row-major copy, read with these strides."""
    shape, layout = build.output().shape, Layout(tensor.dtype)
    result = build.new(build.output().name, shape, layout)
    target = layout.strides(shape)
    kernel = strided_copy(tensor.dtype, tensor.dtype, shape, strides, target, start)
    build.kernel(kernel, [tensor], [result])
    build.define(0, result)


def refuse_many_axes(arguments: object, question: Question) -> str:
    """A copy has at most as many axes as its kernel has strides."""
    value = question.output()
    if value is None or len(value.shape) <= AXES:
        return ""
    return f"{question.node.op} of {len(value.shape)} axes; the limit is {AXES}"
