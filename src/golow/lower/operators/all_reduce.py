"""The mean of parameters' gradients over all ranks of a data-parallel training."""

from __future__ import annotations

from typing import TYPE_CHECKING

from golow.lower.ir.graph import Ref
from golow.lower.ir.operator import Operator

if TYPE_CHECKING:
    from torch import Tensor


class AllReduce(Operator, frozen=True, kw_only=True):
    """Each gradient's mean over that many ranks. A pass adds these nodes; ATen has no name for
    them.

    Its meaning is that of ranks which all have the same gradients: a graph is of one rank and does
    not know the others' values. What the ranks' means are is checked where all of them are.
    """

    gradients: tuple[Ref, ...]
    ranks: int

    @property
    def results(self) -> int:
        return len(self.gradients)

    @staticmethod
    def meaning(gradients: list[Tensor], ranks: int) -> tuple[Tensor, ...] | Tensor:
        means = tuple(gradient.clone() for gradient in gradients)
        return means if len(means) > 1 else means[0]
