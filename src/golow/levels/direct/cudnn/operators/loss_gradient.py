"""The start of backward: the gradient of the loss with respect to itself."""

from __future__ import annotations

from typing import TYPE_CHECKING

from golow.levels.direct.cudnn.problems.layouts import Layout
from golow.levels.direct.cudnn.shared_kernels.pointwise import Operand, pointwise
from golow.levels.direct.cudnn.steps.built_plan import LOSS_SCALE
from golow.levels.direct.formulas.literals import number
from golow.levels.direct.implementation import Implementation, Question
from golow.lower.operators.loss_gradient import LossGradient

if TYPE_CHECKING:
    from golow.levels.direct.cudnn.build.builder import Builder


def loss_gradient(build: Builder, arguments: LossGradient) -> None:
    """Define it as one or, with loss scaling, as the scale, the first field of its cell; or as a
    share of either."""
    if not build.types.scaled:
        build.values.define(0, build.memory.number(arguments.share))
        return
    scale = build.memory.cell(LOSS_SCALE)._replace(shape=(), layout=Layout("float32"))
    if arguments.share != 1.0:
        result = build.memory.new(build.current.output().name, (), Layout("float32"))
        kernel = pointwise(
            [f"a * {number(arguments.share)}"], [Operand("float32", "scalar")], ["float32"], 1
        )
        build.steps.kernel(kernel, [scale], [result])
        scale = result
    build.values.define(0, scale)


def _refuse(arguments: LossGradient, question: Question) -> str:
    return "" if arguments.dtype == "float32" else f"{question.node.op} of {arguments.dtype}"


IMPLEMENTATIONS = (Implementation(LossGradient, loss_gradient, _refuse),)
