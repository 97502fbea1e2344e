"""Blocks of pixels turned into channels."""

from __future__ import annotations

from typing import TYPE_CHECKING

from golow.lower.ir.graph import Ref
from golow.lower.ir.operator import Operator

if TYPE_CHECKING:
    from torch import Tensor

    from golow.lower.ir.spelling import Call


class PixelUnshuffle(Operator, frozen=True, kw_only=True):
    """x [N, C, H, W] in blocks of pixels: [N, C factor^2, H / factor, W / factor]."""

    x: Ref
    factor: int

    @staticmethod
    def meaning(x: Tensor, factor: int) -> Tensor:
        from torch.nn import functional

        return functional.pixel_unshuffle(x, factor)


def unshuffle(call: Call) -> PixelUnshuffle | None:
    """``pixel_unshuffle`` of batched images."""
    if call.rank("self") != 4:
        return None
    return PixelUnshuffle(x=call.ref("self"), factor=call.integer("downscale_factor"))


SPELLINGS = {"aten.pixel_unshuffle.default": unshuffle}
