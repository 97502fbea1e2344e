"""Cases of a graph that the operators of these levels refuse."""

from __future__ import annotations

from golow.levels.direct.implementation import Question
from golow.lower.operators.batch_norm import BatchNorm
from golow.lower.operators.convolution import ConvolutionBackward


def refuse_residual(given: BatchNorm, question: Question) -> str:
    """Refuse what a pass of another level fused."""
    return "" if given.residual is None else "a batch norm with a residual"


def refuse_gradient_of_weight(given: ConvolutionBackward, question: Question) -> str:
    """Refuse the gradient of a weight, which no forward pass needs."""
    further = any(question.output(index) is not None for index in (1, 2))
    return "the gradient of a convolution's weight in a forward pass" if further else ""
