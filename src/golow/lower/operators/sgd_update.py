"""SGD with momentum and weight decay: one step of one parameter."""

from __future__ import annotations

from typing import TYPE_CHECKING

from golow.lower.graph import Ref
from golow.lower.operator import Operator

if TYPE_CHECKING:
    from torch import Tensor


class SgdUpdate(Operator, frozen=True, kw_only=True):
    """The new momentum, factor * momentum + gradient + weight_decay * parameter, and the new
    parameter, parameter - learning_rate * new momentum.

    The learning rate is a value of the graph, so that it can change from step to step. A pass adds
    these nodes; ATen has no name for them.
    """

    parameter: Ref
    momentum: Ref
    gradient: Ref
    learning_rate: Ref
    factor: float
    weight_decay: float

    @property
    def results(self) -> int:
        return 2

    @staticmethod
    def meaning(
        parameter: Tensor,
        momentum: Tensor,
        gradient: Tensor,
        learning_rate: Tensor,
        factor: float,
        weight_decay: float,
    ) -> tuple[Tensor, Tensor]:
        decayed = gradient if weight_decay == 0 else gradient + weight_decay * parameter
        moved = factor * momentum + decayed
        return moved, parameter - learning_rate * moved
