"""Matrix products, single or batched."""

from __future__ import annotations

from typing import TYPE_CHECKING

from golow.lower.ir.graph import Ref
from golow.lower.ir.operator import Operator

if TYPE_CHECKING:
    from torch import Tensor

    from golow.lower.ir.spelling import Call


class MatrixProduct(Operator, frozen=True, kw_only=True):
    """a b factor + added. a: [M, K], b: [K, N]; or [B, M, K] and [B, K, N]. added: of the result's
    shape; of two matrices alone."""

    a: Ref
    b: Ref
    factor: float = 1.0
    added: Ref | None = None

    @staticmethod
    def meaning(a: Tensor, b: Tensor, factor: float, added: Tensor | None = None) -> Tensor:
        found = a @ b * factor if factor != 1 else a @ b
        return found if added is None else found + added


def product(call: Call) -> MatrixProduct:
    """``mm`` and ``bmm``."""
    return MatrixProduct(a=call.ref("self"), b=call.ref("mat2"))


SPELLINGS = {"aten.mm.default": product, "aten.bmm.default": product}
