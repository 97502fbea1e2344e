"""One layer of a recurrent network in one direction, over all its time steps, and its gradients.

Only a pass and the capture of training make these (`golow.lower.recognise.recurrences`): a level
without a kernel for them gets the loop over time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from golow.lower.ir.graph import Ref
from golow.lower.ir.operator import Operator

if TYPE_CHECKING:
    from torch import Tensor

Cell = Literal["lstm", "gru", "rnn_tanh", "rnn_relu"]

GATES = {"lstm": 4, "gru": 3, "rnn_tanh": 1, "rnn_relu": 1}
"""Rows of a weight are blocks of hidden size, one for each gate, in PyTorch's order: input, forget,
cell, output; reset, update, new."""


class Recurrence(Operator, frozen=True, kw_only=True):
    """The results of every time step, and of an LSTM the cell's last state.

    x: [L, N, I], hidden: [N, R], cell: [N, H] of an LSTM, input_weight: [G H, I], hidden_weight:
    [G H, R], both biases: [G H], projection: [R, H]; R is H without a projection. The results are
    [L, N, R] and [N, H]. backwards: from the last time step to the first, which is then the last.
    """

    kind: Cell
    backwards: bool
    x: Ref
    hidden: Ref
    cell: Ref | None
    input_weight: Ref
    hidden_weight: Ref
    input_bias: Ref | None
    hidden_bias: Ref | None
    projection: Ref | None

    @property
    def results(self) -> int:
        return 2

    @staticmethod
    def meaning(
        kind: Cell,
        backwards: bool,
        x: Tensor,
        hidden: Tensor,
        cell: Tensor | None,
        input_weight: Tensor,
        hidden_weight: Tensor,
        input_bias: Tensor | None,
        hidden_bias: Tensor | None,
        projection: Tensor | None,
    ) -> tuple[Any, ...]:
        from golow.lower.decompositions.recurrent import loop

        weights = (input_weight, hidden_weight, input_bias, hidden_bias, projection)
        return loop(kind, backwards, x, hidden, cell, *weights)


class RecurrenceBackward(Operator, frozen=True, kw_only=True):
    """The gradients of x, hidden, cell, both weights, both biases and the projection.

    gradient: of the results of every step, last_gradient: of the cell's last state, None if nothing
    reads that; output: the first result of `Recurrence`.
    """

    gradient_of = Recurrence
    keeps_operands = True

    gradient: Ref
    last_gradient: Ref | None
    output: Ref
    kind: Cell
    backwards: bool
    x: Ref
    hidden: Ref
    cell: Ref | None
    input_weight: Ref
    hidden_weight: Ref
    input_bias: Ref | None
    hidden_bias: Ref | None
    projection: Ref | None

    @property
    def results(self) -> int:
        return 8

    @staticmethod
    def meaning(
        gradient: Tensor,
        last_gradient: Tensor | None,
        output: Tensor,
        kind: Cell,
        backwards: bool,
        x: Tensor,
        hidden: Tensor,
        cell: Tensor | None,
        input_weight: Tensor,
        hidden_weight: Tensor,
        input_bias: Tensor | None,
        hidden_bias: Tensor | None,
        projection: Tensor | None,
    ) -> tuple[Any, ...]:
        from golow.lower.decompositions.recurrent import loop_gradients

        weights = (input_weight, hidden_weight, input_bias, hidden_bias, projection)
        given = (x, hidden, cell, *weights)
        _, gradients = loop_gradients(kind, backwards, given, gradient, last_gradient)
        return gradients
