"""Adam and AdamW: what the number of steps decides, and one step of one parameter."""

from __future__ import annotations

from typing import TYPE_CHECKING

from golow.lower.ir.graph import Ref
from golow.lower.ir.operator import Operator

if TYPE_CHECKING:
    from torch import Tensor


class AdamStep(Operator, frozen=True, kw_only=True):
    """The number of this step, the rate by which it moves the momentum, and the root by which it
    divides that of the squares.

    Running means begin at zero, so the first are too small: momentum by 1 - betas[0] ** number,
    squares by 1 - betas[1] ** number. rate is the learning rate over the former, root the square
    root of the latter (Kingma and Ba, "Adam", arXiv:1412.6980, algorithm 1).
    """

    steps: Ref
    learning_rate: Ref
    betas: tuple[float, float]

    @property
    def results(self) -> int:
        return 3

    @staticmethod
    def meaning(
        steps: Tensor, learning_rate: Tensor, betas: tuple[float, float]
    ) -> tuple[Tensor, Tensor, Tensor]:
        number = steps + 1
        first, second = (1 - beta ** number.double() for beta in betas)
        rate, root = learning_rate.double() / first, second.sqrt()
        return number, rate.to(steps.dtype), root.to(steps.dtype)


class AdamUpdate(Operator, frozen=True, kw_only=True):
    """The new momentum, the new running mean of the gradients' squares, and the new parameter,

        parameter - rate * momentum / (sqrt(square) / root + epsilon).

    rate and root: of `AdamStep`. weight_decay: times the parameter it is added to the gradient, or,
    if decoupled (AdamW), the parameter first shrinks by learning_rate * weight_decay of itself.
    clip: what the gradient is multiplied by first.
    """

    parameter: Ref
    momentum: Ref
    square: Ref
    gradient: Ref
    learning_rate: Ref
    rate: Ref
    root: Ref
    betas: tuple[float, float]
    epsilon: float
    weight_decay: float
    decoupled: bool
    clip: Ref | None = None

    @property
    def results(self) -> int:
        return 3

    @staticmethod
    def meaning(
        parameter: Tensor,
        momentum: Tensor,
        square: Tensor,
        gradient: Tensor,
        learning_rate: Tensor,
        rate: Tensor,
        root: Tensor,
        betas: tuple[float, float],
        epsilon: float,
        weight_decay: float,
        decoupled: bool,
        clip: Tensor | None = None,
    ) -> tuple[Tensor, Tensor, Tensor]:
        slope = gradient if clip is None else gradient * clip
        if weight_decay and decoupled:
            parameter = parameter * (1 - learning_rate * weight_decay)
        elif weight_decay:
            slope = slope + weight_decay * parameter
        mean = betas[0] * momentum + (1 - betas[0]) * slope
        squares = betas[1] * square + (1 - betas[1]) * slope * slope
        return mean, squares, parameter - rate * mean / (squares.sqrt() / root + epsilon)
