"""Products of groups of rows, each group with a separate matrix: mixtures of experts. How many
rows a group has depends on content."""

from __future__ import annotations

from typing import TYPE_CHECKING

from golow.lower.ir.graph import Ref
from golow.lower.ir.operator import Operator

if TYPE_CHECKING:
    from torch import Tensor


class GroupedProduct(Operator, frozen=True, kw_only=True):
    """x [rows, width] by weight [groups, width, outputs], or [groups, outputs, width] if that is
    turned. ends [groups]: the first row after each group's own; a group begins where the one before
    it ends. Rows after the last end give zeros."""

    x: Ref
    weight: Ref
    ends: Ref
    turned: bool

    @staticmethod
    def meaning(x: Tensor, weight: Tensor, ends: Tensor, turned: bool) -> Tensor:
        from golow.lower.decompositions.experts import grouped_product

        return grouped_product(x, weight.transpose(1, 2) if turned else weight, ends)


class GroupedSums(Operator, frozen=True, kw_only=True):
    """The gradient of a grouped product's weight: x [rows, width] and gradient [rows, outputs] give
    the sums [groups, width, outputs] over the rows of each group."""

    gradient_of = GroupedProduct

    x: Ref
    gradient: Ref
    ends: Ref

    @staticmethod
    def meaning(x: Tensor, gradient: Tensor, ends: Tensor) -> Tensor:
        from golow.lower.decompositions.experts import grouped_sums

        return grouped_sums(x, gradient, ends)
