"""Layers of a recurrent network, each on the results of the one before, and their gradients.

Only a level whose library computes such layers together makes them
(`golow.levels.direct.cudnn.stacking`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from golow.lower.ir.graph import Ref
from golow.lower.ir.operator import Operator
from golow.lower.operators.recurrence import Cell

if TYPE_CHECKING:
    from torch import Tensor


class RecurrentStack(Operator, frozen=True, kw_only=True):
    """The results of every time step of the last layer.

    x: [L, N, I]; hidden: [N, R] of every layer, of both directions of it with bidirectional; cell:
    [N, H] likewise of an LSTM, else nothing; weights: PyTorch's order, of one after the other: both
    matrices, with biased both biases, and an LSTM's projection [R, H] if R is not H. The result is
    [L, N, D R] in D directions.
    """

    kind: Cell
    bidirectional: bool
    biased: bool
    x: Ref
    hidden: tuple[Ref, ...]
    cell: tuple[Ref, ...]
    weights: tuple[Ref, ...]

    @staticmethod
    def meaning(
        kind: Cell,
        bidirectional: bool,
        biased: bool,
        x: Tensor,
        hidden: list[Tensor],
        cell: list[Tensor],
        weights: list[Tensor],
    ) -> Tensor:
        for layer in _layers(bidirectional, _ends(biased, hidden, cell, weights)):
            x = _results(kind, x, layer)
        return x


class RecurrentStackBackward(Operator, frozen=True, kw_only=True):
    """The gradients of x, of the hidden states, of the cells and of the weights, one after the
    other. gradient: of the result; output: the result."""

    keeps_operands = True

    gradient: Ref
    output: Ref
    kind: Cell
    bidirectional: bool
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
        bidirectional: bool,
        biased: bool,
        x: Tensor,
        hidden: list[Tensor],
        cell: list[Tensor],
        weights: list[Tensor],
    ) -> tuple[Any, ...]:
        from golow.lower.decompositions.recurrent import loop_gradients

        passed = []
        for layer in _layers(bidirectional, _ends(biased, hidden, cell, weights)):
            passed.append((x, layer))
            x = _results(kind, x, layer)
        found: list[tuple[Any, ...]] = []
        for read, layer in reversed(passed):
            parts = gradient.chunk(len(layer), 2)
            sides = [
                loop_gradients(kind, bool(side), (read, *given), parts[side], None)[1]
                for side, given in enumerate(layer)
            ]
            gradient = sum(gradients[0] for gradients in sides)  # type: ignore[assignment, misc]
            found[:0] = sides
        of_weights = (g for side in found for g in side[3:] if g is not None)
        of_cells = (side[2] for side in found if side[2] is not None)
        return (gradient, *(side[1] for side in found), *of_cells, *of_weights)


Given = tuple[Any, ...]
"""Arguments of a layer in one direction that `golow.lower.decompositions.recurrent.loop` takes
after x."""


def _results(kind: Cell, x: Tensor, layer: Sequence[Given]) -> Tensor:
    import torch

    from golow.lower.decompositions.recurrent import loop

    made = [loop(kind, bool(side), x, *given)[0] for side, given in enumerate(layer)]
    return torch.cat(made, 2) if len(made) > 1 else made[0]


def _layers(bidirectional: bool, ends: Sequence[Given]) -> list[Sequence[Given]]:
    sides = 2 if bidirectional else 1
    return [ends[at : at + sides] for at in range(0, len(ends), sides)]


def _ends(
    biased: bool, hidden: Sequence[Tensor], cell: Sequence[Tensor], weights: Sequence[Tensor]
) -> list[Given]:
    found, count = [], len(weights) // len(hidden)
    for index, state in enumerate(hidden):
        left = iter(weights[index * count : (index + 1) * count])
        matrices = next(left), next(left)
        biases = (next(left), next(left)) if biased else (None, None)
        found.append((state, cell[index] if cell else None, *matrices, *biases, next(left, None)))
    return found
