"""A convolution in one of its three directions, as engines take it."""

from __future__ import annotations

import math
from typing import Literal

from golow.levels.vendor.cudnn.kernels import ITEM_BYTES
from golow.levels.vendor.cudnn.kernels.blocks import NO_CLIP, Clip
from golow.record import Record

Arithmetic = Literal["ieee", "tf32", "half"]
Direction = Literal["forward", "backward_data", "backward_weight"]


class Convolution(Record, frozen=True, kw_only=True):
    """A convolution of NHWC images with KRSC weights.

    image: N, C, H, W of the layer's input; output: N, K, P, Q of its result; kernel: R, S; padding:
    top, left, bottom, right. dtype: of what is read; result: of what is written. bias (dtype),
    residual (like the output) and clip, the limits of the result, are for the forward direction
    only.

    Operands, in this order. forward: image, weight[, bias][, residual] -> output. backward_data:
    gradient of the output, weight -> gradient of the image. backward_weight: image, gradient of
    the output -> gradient of the weight.
    """

    direction: Direction
    image: tuple[int, int, int, int]
    output: tuple[int, int, int, int]
    kernel: tuple[int, int]
    stride: tuple[int, int]
    padding: tuple[int, int, int, int]
    dilation: tuple[int, int]
    groups: int
    dtype: str
    result: str
    arithmetic: Arithmetic
    bias: bool = False
    residual: bool = False
    clip: Clip = NO_CLIP

    @property
    def weight(self) -> tuple[int, int, int, int]:
        """K, C / groups, R, S."""
        return (self.output[1], self.image[1] // self.groups, *self.kernel)

    @property
    def pointwise(self) -> bool:
        """Whether it is a product over the pixels: one tap, stride 1, no padding, no groups."""
        return (
            self.kernel == (1, 1)
            and self.stride == (1, 1)
            and not any(self.padding)
            and self.groups == 1
        )

    @property
    def depthwise(self) -> bool:
        """Whether every channel has its own filters."""
        return self.groups > 1 and self.groups == self.image[1]

    @property
    def operand_bytes(self) -> tuple[int, ...]:
        """Sizes of the operands in their order, in bytes."""
        read, written = ITEM_BYTES[self.dtype], ITEM_BYTES[self.result]
        image, output, weight = map(math.prod, (self.image, self.output, self.weight))
        if self.direction == "forward":
            sizes = [image * read, weight * read]
            sizes += [self.output[1] * read] if self.bias else []
            sizes += [output * written] if self.residual else []
            return (*sizes, output * written)
        if self.direction == "backward_data":
            return output * read, weight * read, image * written
        return image * read, output * read, weight * written
