"""A whole recurrent network without dropout: all its layers in all directions, in inference.

Only a level whose library computes such networks as a whole makes it
(`golow.levels.direct.cudnn.recurrences`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from golow.lower.ir.graph import Ref
from golow.lower.ir.operator import Operator
from golow.lower.operators.recurrence import Cell

if TYPE_CHECKING:
    from torch import Tensor


class RecurrentLayers(Operator, frozen=True, kw_only=True):
    """The results of every time step, and the last states of every layer and direction.

    x: [L, N, I], or [N, L, I] with batch_first; hidden: [S, N, R], cell: [S, N, H] of an LSTM, for
    S layers and directions: those of the first layer first. weights: PyTorch's order, which is for
    each of S both matrices, with biased both biases, and an LSTM's projection [R, H] if R is not H.
    The first result is [L, N, D R] or [N, L, D R] in D directions; the states have the shapes of
    the first ones.
    """

    kind: Cell
    layers: int
    bidirectional: bool
    batch_first: bool
    biased: bool
    x: Ref
    hidden: Ref
    cell: Ref | None
    weights: tuple[Ref, ...]

    @property
    def results(self) -> int:
        return 3 if self.kind == "lstm" else 2

    @staticmethod
    def meaning(
        kind: Cell,
        layers: int,
        bidirectional: bool,
        batch_first: bool,
        biased: bool,
        x: Tensor,
        hidden: Tensor,
        cell: Tensor | None,
        weights: list[Tensor],
    ) -> tuple[Any, ...]:
        from golow.lower.decompositions.recurrent import loop, whole_call

        first = hidden if cell is None else (hidden, cell)
        settings = (biased, layers, 0.0, False, bidirectional, batch_first)
        results: tuple[Any, ...] = whole_call(loop, kind, x, first, weights, *settings)
        return results
