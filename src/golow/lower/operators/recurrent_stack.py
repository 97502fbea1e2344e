"""Layers of a recurrent network in one direction, each on the results of the one before, and their
gradients.

Only a level whose library computes such layers together makes them
(`golow.levels.vendor.cudnn.stacking`).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from golow.lower.graph import Ref
from golow.lower.operator import Operator
from golow.lower.operators.recurrence import Cell

if TYPE_CHECKING:
    from torch import Tensor


class RecurrentStack(Operator, frozen=True, kw_only=True):
    """The results of every time step of the last layer.

    x: [L, N, I]; hidden: [N, R] of every layer; cell: [N, H] of every layer of an LSTM, else
    nothing; weights: PyTorch's order, layer by layer: both matrices, with biased both biases, and
    an LSTM's projection [R, H] if R is not H. The result is [L, N, R].
    """

    kind: Cell
    biased: bool
    x: Ref
    hidden: tuple[Ref, ...]
    cell: tuple[Ref, ...]
    weights: tuple[Ref, ...]

    @staticmethod
    def meaning(
        kind: Cell,
        biased: bool,
        x: Tensor,
        hidden: list[Tensor],
        cell: list[Tensor],
        weights: list[Tensor],
    ) -> Tensor:
        from golow.lower.decompositions.recurrent import loop

        for given in _layers(biased, hidden, cell, weights):
            x, _ = loop(kind, False, x, *given)
        return x


class RecurrentStackBackward(Operator, frozen=True, kw_only=True):
    """The gradients of x, of the hidden states, of the cells and of the weights, one after the
    other. gradient: of the result; output: the result."""

    gradient: Ref
    output: Ref
    kind: Cell
    biased: bool
    x: Ref
    hidden: tuple[Ref, ...]
    cell: tuple[Ref, ...]
    weights: tuple[Ref, ...]

    @property
    def results(self) -> int:
        return 1 + len(self.hidden) + len(self.cell) + len(self.weights)

    @staticmethod
    def meaning(
        gradient: Tensor,
        output: Tensor,
        kind: Cell,
        biased: bool,
        x: Tensor,
        hidden: list[Tensor],
        cell: list[Tensor],
        weights: list[Tensor],
    ) -> tuple[Any, ...]:
        from golow.lower.decompositions.recurrent import loop, loop_gradients

        passed = []
        for given in _layers(biased, hidden, cell, weights):
            passed.append((x, *given))
            x, _ = loop(kind, False, x, *given)
        found: list[tuple[Any, ...]] = []
        for layer in reversed(passed):
            _, gradients = loop_gradients(kind, False, layer, gradient, None)
            gradient = gradients[0]  # type: ignore[assignment]
            found.insert(0, gradients)
        of_weights = (g for layer in found for g in layer[3:] if g is not None)
        of_cells = (layer[2] for layer in found if layer[2] is not None)
        return (gradient, *(layer[1] for layer in found), *of_cells, *of_weights)


def _layers(
    biased: bool, hidden: list[Tensor], cell: list[Tensor], weights: list[Tensor]
) -> Iterator[tuple[Any, ...]]:
    """Of each layer what `golow.lower.decompositions.recurrent.loop` takes after x."""
    count = len(weights) // len(hidden)
    for index, state in enumerate(hidden):
        left = iter(weights[index * count : (index + 1) * count])
        matrices = next(left), next(left)
        biases = (next(left), next(left)) if biased else (None, None)
        yield state, cell[index] if cell else None, *matrices, *biases, next(left, None)
