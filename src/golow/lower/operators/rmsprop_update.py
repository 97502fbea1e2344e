"""RMSprop: one step of one parameter."""

from __future__ import annotations

from typing import TYPE_CHECKING

from golow.lower.ir.graph import Ref
from golow.lower.ir.operator import Operator

if TYPE_CHECKING:
    from torch import Tensor


class RmspropUpdate(Operator, frozen=True, kw_only=True):
    """The new running mean of the gradients' squares, the new momentum if there is one, and the new
    parameter, parameter - learning_rate * momentum.

    The momentum is factor * momentum + gradient / (sqrt(square) + epsilon); without one, the second
    term takes its place. clip: what the gradient is multiplied by first.
    """

    parameter: Ref
    square: Ref
    momentum: Ref | None
    gradient: Ref
    learning_rate: Ref
    smoothing: float
    epsilon: float
    factor: float
    weight_decay: float
    clip: Ref | None = None

    @property
    def results(self) -> int:
        return 2 if self.momentum is None else 3

    @staticmethod
    def meaning(
        parameter: Tensor,
        square: Tensor,
        momentum: Tensor | None,
        gradient: Tensor,
        learning_rate: Tensor,
        smoothing: float,
        epsilon: float,
        factor: float,
        weight_decay: float,
        clip: Tensor | None = None,
    ) -> tuple[Tensor, ...]:
        slope = gradient if clip is None else gradient * clip
        if weight_decay:
            slope = slope + weight_decay * parameter
        squares = smoothing * square + (1 - smoothing) * slope * slope
        change = slope / (squares.sqrt() + epsilon)
        if momentum is None:
            return squares, parameter - learning_rate * change
        moved = factor * momentum + change
        return squares, moved, parameter - learning_rate * moved
