"""Average pooling of an image, and its gradient."""

from __future__ import annotations

from typing import TYPE_CHECKING

from golow.lower.ir.graph import Ref
from golow.lower.ir.operator import Operator

if TYPE_CHECKING:
    from torch import Tensor

    from golow.lower.ir.spelling import Call


Pair = tuple[int, int]


class AveragePool(Operator, frozen=True, kw_only=True):
    """The mean of each window of x [N, C, H, W].

    ceil: windows may begin in the image and end beyond its padding. with_padding: padding counts as
    pixels. divisor: divides the sum in place of the count.
    """

    x: Ref
    kernel: Pair
    stride: Pair
    padding: Pair
    ceil: bool
    with_padding: bool
    divisor: int | None

    @staticmethod
    def meaning(
        x: Tensor,
        kernel: Pair,
        stride: Pair,
        padding: Pair,
        ceil: bool,
        with_padding: bool,
        divisor: int | None,
    ) -> Tensor:
        from torch.nn import functional

        return functional.avg_pool2d(x, kernel, stride, padding, ceil, with_padding, divisor)


class AveragePoolBackward(Operator, frozen=True, kw_only=True):
    """Spreads each gradient evenly over its window."""

    gradient_of = AveragePool

    gradient: Ref
    x: Ref
    kernel: Pair
    stride: Pair
    padding: Pair
    ceil: bool
    with_padding: bool
    divisor: int | None

    @staticmethod
    def meaning(
        gradient: Tensor,
        x: Tensor,
        kernel: Pair,
        stride: Pair,
        padding: Pair,
        ceil: bool,
        with_padding: bool,
        divisor: int | None,
    ) -> Tensor:
        import torch

        found: Tensor = torch.ops.aten.avg_pool2d_backward.default(
            gradient, x, kernel, stride, padding, ceil, with_padding, divisor
        )
        return found


def pool(call: Call) -> AveragePool | None:
    """``avg_pool2d``."""
    if call.rank("self") != 4:
        return None
    return AveragePool(
        x=call.ref("self"),
        kernel=call.pair("kernel_size"),
        stride=_stride(call),
        padding=call.pair("padding"),
        ceil=call.flag("ceil_mode"),
        with_padding=call.flag("count_include_pad"),
        divisor=_divisor(call),
    )


def backward(call: Call) -> AveragePoolBackward | None:
    """``avg_pool2d_backward``."""
    if call.rank("self") != 4:
        return None
    return AveragePoolBackward(
        gradient=call.ref("grad_output"),
        x=call.ref("self"),
        kernel=call.pair("kernel_size"),
        stride=_stride(call),
        padding=call.pair("padding"),
        ceil=call.flag("ceil_mode"),
        with_padding=call.flag("count_include_pad"),
        divisor=_divisor(call),
    )


def _stride(call: Call) -> Pair:
    height, width = call.pool_stride(2)
    return height, width


def _divisor(call: Call) -> int | None:
    return None if call.given("divisor_override") is None else call.integer("divisor_override")


SPELLINGS = {
    "aten.avg_pool2d.default": pool,
    "aten.avg_pool2d_backward.default": backward,
}
