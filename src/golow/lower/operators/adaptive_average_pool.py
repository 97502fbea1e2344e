"""Average pooling to a given size, and its gradient."""

from __future__ import annotations

from typing import TYPE_CHECKING

from golow.lower.ir.graph import Ref
from golow.lower.ir.operator import Operator

if TYPE_CHECKING:
    from torch import Tensor

    from golow.lower.ir.spelling import Call


Pair = tuple[int, int]


class AdaptiveAveragePool(Operator, frozen=True, kw_only=True):
    """The means over ``size`` windows that cover the image x [N, C, H, W].

    Window i of n over m pixels reaches from floor(i m / n) to ceil((i + 1) m / n).
    """

    x: Ref
    size: Pair

    @staticmethod
    def meaning(x: Tensor, size: Pair) -> Tensor:
        from torch.nn import functional

        return functional.adaptive_avg_pool2d(x, size)


class AdaptiveAveragePoolBackward(Operator, frozen=True, kw_only=True):
    """Spreads each gradient evenly over its window of an image of this shape [N, C, H, W]."""

    gradient_of = AdaptiveAveragePool

    gradient: Ref
    shape: tuple[int, int, int, int]

    @staticmethod
    def meaning(gradient: Tensor, shape: tuple[int, int, int, int]) -> Tensor:
        import torch

        found: Tensor = torch.ops.aten._adaptive_avg_pool2d_backward.default(
            gradient, gradient.new_empty(shape)
        )
        return found


def pool(call: Call) -> AdaptiveAveragePool | None:
    """``adaptive_avg_pool2d`` of batched images."""
    if call.rank("self") != 4:
        return None
    height, width = call.output().shape[2:]
    return AdaptiveAveragePool(x=call.ref("self"), size=(height, width))


def backward(call: Call) -> AdaptiveAveragePoolBackward | None:
    """``_adaptive_avg_pool2d_backward``, which reads only the shape of the image."""
    if call.rank("self") != 4:
        return None
    images, channels, height, width = call.shape("self")
    return AdaptiveAveragePoolBackward(
        gradient=call.ref("grad_output"), shape=(images, channels, height, width)
    )


SPELLINGS = {
    "aten.adaptive_avg_pool2d.default": pool,
    "aten._adaptive_avg_pool2d.default": pool,
    "aten._adaptive_avg_pool2d_backward.default": backward,
}
