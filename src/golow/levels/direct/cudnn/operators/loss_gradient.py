"""The start of backward: the gradient of the loss with respect to itself."""

from __future__ import annotations

from typing import TYPE_CHECKING

from golow.levels.direct.cudnn.problems.layouts import Layout
from golow.levels.direct.cudnn.steps.built_plan import LOSS_SCALE
from golow.levels.direct.implementation import Implementation, Question
from golow.lower.operators.loss_gradient import LossGradient

if TYPE_CHECKING:
    from golow.levels.direct.cudnn.build.builder import Builder


def loss_gradient(build: Builder, arguments: LossGradient) -> None:
    """Define it as one or, with loss scaling, as the scale: the first field of its cell."""
    if build.types.scaled:
        scale = build.memory.cell(LOSS_SCALE)
        build.values.define(0, scale._replace(shape=(), layout=Layout("float32")))
    else:
        build.values.define(0, build.memory.number(1.0))


def _refuse(arguments: LossGradient, question: Question) -> str:
    return "" if arguments.dtype == "float32" else f"{question.node.op} of {arguments.dtype}"


IMPLEMENTATIONS = (Implementation(LossGradient, loss_gradient, _refuse),)
