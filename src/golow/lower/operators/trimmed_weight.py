"""The taps of a kernel that read the image."""

from __future__ import annotations

from typing import TYPE_CHECKING

from golow.lower.ir.graph import Ref
from golow.lower.ir.operator import Operator

if TYPE_CHECKING:
    from torch import Tensor


class TrimmedWeight(Operator, frozen=True, kw_only=True):
    """The taps of a kernel [K, C, R, S] in these half-open ranges of rows and columns."""

    weight: Ref
    rows: tuple[int, int]
    columns: tuple[int, int]

    @staticmethod
    def meaning(weight: Tensor, rows: tuple[int, int], columns: tuple[int, int]) -> Tensor:
        return weight[:, :, rows[0] : rows[1], columns[0] : columns[1]].clone()
