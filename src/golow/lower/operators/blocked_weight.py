"""The weight of a convolution over blocks of pixels."""

from __future__ import annotations

from typing import TYPE_CHECKING

from golow.lower.graph import Ref
from golow.lower.operator import Operator

if TYPE_CHECKING:
    from torch import Tensor


class BlockedWeight(Operator, frozen=True, kw_only=True):
    """The weight of a convolution with stride 2, rearranged for an image in blocks of 2x2 pixels
    with channels in the order of `PixelUnshuffle`: [K, C, R, S] -> [K, 4 C, R', S'].

    top, left: the convolution's padding; `golow.lower.stem` has the arithmetic. Taps outside the
    kernel are zero.
    """

    weight: Ref
    top: int
    left: int

    @staticmethod
    def meaning(weight: Tensor, top: int, left: int) -> Tensor:
        from torch.nn import functional

        rows, columns = weight.shape[2:]
        # Pad in front so that the first tap meets the first pixel of a block.
        before = [top % 2, left % 2]
        after = [(before[0] + rows) % 2, (before[1] + columns) % 2]
        padded = functional.pad(weight, (before[1], after[1], before[0], after[0]))
        return functional.pixel_unshuffle(padded, 2)
