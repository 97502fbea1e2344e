"""The start of backward: the gradient of the loss with respect to itself."""

from __future__ import annotations

import numpy as np

from golow.levels.direct.implementation import Implementation, Question
from golow.levels.direct.onednn.build.builder import Builder
from golow.lower.operators.loss_gradient import LossGradient


def loss_gradient(build: Builder, arguments: LossGradient) -> None:
    """One, or a share of it."""
    number = np.full((), arguments.share)
    build.values.define(0, build.memory.constant(build.current.output_name(), number))


def _refuse(arguments: LossGradient, question: Question) -> str:
    return "" if arguments.dtype == "float32" else f"{question.node.op} of {arguments.dtype}"


IMPLEMENTATIONS = (Implementation(LossGradient, loss_gradient, _refuse),)
