"""SGD with momentum and weight decay: one step of one parameter."""

from __future__ import annotations

from typing import TYPE_CHECKING

from golow.lower.ir.graph import Ref
from golow.lower.ir.operator import Operator

if TYPE_CHECKING:
    from torch import Tensor


class SgdUpdate(Operator, frozen=True, kw_only=True):
    """The new momentum, factor * momentum + gradient + weight_decay * parameter, and the new
    parameter, parameter - learning_rate * new momentum.

    nesterov: the parameter moves by gradient + weight_decay * parameter + factor * new momentum
    instead. clip: what the gradient is multiplied by first, a value of the graph. The learning rate
    is a value of the graph, so that it can change from step to step. A pass adds these nodes; ATen
    has no name for them.
    """

    parameter: Ref
    momentum: Ref
    gradient: Ref
    learning_rate: Ref
    factor: float
    weight_decay: float
    nesterov: bool = False
    clip: Ref | None = None

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
        nesterov: bool = False,
        clip: Tensor | None = None,
    ) -> tuple[Tensor, Tensor]:
        slope = gradient if clip is None else gradient * clip
        decayed = slope if weight_decay == 0 else slope + weight_decay * parameter
        moved = factor * momentum + decayed
        change = decayed + factor * moved if nesterov else moved
        return moved, parameter - learning_rate * change
