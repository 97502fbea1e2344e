"""A recurrence of first order that is linear in its state, over all its steps, and its gradients:
the scan of state space models, of gated and of decaying averages.

Only a pass and the capture of training make these (`golow.lower.recognise.linear_recurrences`): a
level without a kernel for them gets the loop over the steps.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from golow.lower.ir.graph import Ref
from golow.lower.ir.operator import Operator

if TYPE_CHECKING:
    from torch import Tensor


class LinearRecurrence(Operator, frozen=True, kw_only=True):
    """y[t] = decay[t] y[t - 1] + x[t] along an axis, where y[-1] is zero. decay, x and the result
    have one shape."""

    decay: Ref
    x: Ref
    axis: int

    @staticmethod
    def meaning(decay: Tensor, x: Tensor, axis: int) -> Tensor:
        from golow.lower.decompositions.linear_recurrence import recurrence

        return recurrence(decay, x, axis)


class LinearRecurrenceBackward(Operator, frozen=True, kw_only=True):
    """The gradients of decay and x. states: what `LinearRecurrence` returns."""

    gradient_of = LinearRecurrence

    gradient: Ref
    decay: Ref
    states: Ref
    axis: int

    @property
    def results(self) -> int:
        return 2

    @staticmethod
    def meaning(
        gradient: Tensor, decay: Tensor, states: Tensor, axis: int
    ) -> tuple[Tensor, Tensor]:
        from golow.lower.decompositions.linear_recurrence import gradients

        return gradients(gradient, decay, states, axis)
