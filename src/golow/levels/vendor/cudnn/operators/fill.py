"""A tensor whose elements are all the same number."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from golow.levels.vendor.cudnn.kernels.pointwise import Operand, pointwise
from golow.levels.vendor.cudnn.layouts import Layout
from golow.levels.vendor.implementation import Implementation, Question
from golow.lower.operators.fill import Fill

if TYPE_CHECKING:
    from golow.levels.vendor.cudnn.builder import Builder


def fill(build: Builder, arguments: Fill) -> None:
    """A number in GPU memory, copied to every element if there are several."""
    scalar = build.number(arguments.value)
    if math.prod(arguments.shape) == 1:
        build.define(0, scalar)
        return
    result = build.new(build.output().name, arguments.shape, Layout(build.types.computed))
    operand = Operand("float32", "scalar")
    build.kernel(pointwise(["a"], [operand], [result.dtype], result.elements), [scalar], [result])
    build.define(0, result)


def _refuse(arguments: Fill, question: Question) -> str:
    return "" if arguments.dtype == "float32" else f"{question.node.op} of {arguments.dtype}"


IMPLEMENTATIONS = (Implementation(Fill, fill, _refuse),)
