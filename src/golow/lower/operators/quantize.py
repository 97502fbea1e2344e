"""Numbers as whole numbers of 8 bits."""

from __future__ import annotations

from typing import TYPE_CHECKING

from golow.lower.ir.graph import Ref
from golow.lower.ir.operator import Operator

if TYPE_CHECKING:
    from torch import Tensor

RANGES = {"int8": (-128, 127), "uint8": (0, 255)}


class Quantize(Operator, frozen=True, kw_only=True):
    """x times scale, rounded to the nearest whole number (of two equally near ones to the even
    one) and clipped to the range of ``dtype``, "int8" or "uint8".

    x: of any shape; scale: one number. The product is rounded to float32 before, as every level
    does it, so that the whole numbers are the same everywhere if x is.
    """

    x: Ref
    scale: Ref
    dtype: str

    @staticmethod
    def meaning(x: Tensor, scale: Tensor, dtype: str) -> Tensor:
        import torch

        scaled = x.float() * scale.float()
        return torch.round(scaled).clamp(*RANGES[dtype]).to(getattr(torch, dtype))
