"""Numbers of 8 bits: whole numbers, or those of e4m3."""

from __future__ import annotations

from typing import TYPE_CHECKING

from golow.lower.ir.graph import Ref
from golow.lower.ir.operator import Operator

if TYPE_CHECKING:
    from torch import Tensor

E4M3 = "float8_e4m3fn"
"""Floating-point numbers with 4 bits of exponent and 3 of mantissa, under torch's name."""
RANGES = {"int8": (-128, 127), "uint8": (0, 255), E4M3: (-448, 448)}


class Quantize(Operator, frozen=True, kw_only=True):
    """x times scale, rounded to the nearest number of ``dtype`` (of two equally near ones to the
    even one) and clipped to its range: "int8", "uint8" or e4m3.

    x: of any shape; scale: one number. The product is rounded to float32 before, as every level
    does it, so that the results are the same everywhere if x is.
    """

    x: Ref
    scale: Ref
    dtype: str

    @staticmethod
    def meaning(x: Tensor, scale: Tensor, dtype: str) -> Tensor:
        import torch

        scaled = x.float() * scale.float()
        rounded = scaled if dtype == E4M3 else torch.round(scaled)
        return rounded.clamp(*RANGES[dtype]).to(getattr(torch, dtype))


def with_rounded(
    results: tuple[Tensor, ...], scale: Tensor | None, dtype: str
) -> tuple[Tensor, ...]:
    """The results, and the first one as numbers of 8 bits if there is a scale for them."""
    if scale is None:
        return results
    return *results, Quantize.meaning(results[0], scale, dtype)
