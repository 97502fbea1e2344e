"""Max pooling of an image, and its gradient."""

from __future__ import annotations

from typing import TYPE_CHECKING

from golow.lower.graph import Ref
from golow.lower.operator import Operator

if TYPE_CHECKING:
    from torch import Tensor

    from golow.lower.spelling import Call


Pair = tuple[int, int]


class MaxPool(Operator, frozen=True, kw_only=True):
    """The maximum of each window of x [N, C, H, W]; with ``indices`` also its position, which only
    the gradient reads. ceil: windows may begin in the image and end beyond its padding."""

    x: Ref
    kernel: Pair
    stride: Pair
    padding: Pair
    dilation: Pair
    ceil: bool
    indices: bool

    @property
    def results(self) -> int:
        return 2 if self.indices else 1

    @staticmethod
    def meaning(
        x: Tensor,
        kernel: Pair,
        stride: Pair,
        padding: Pair,
        dilation: Pair,
        ceil: bool,
        indices: bool,
    ) -> Tensor | tuple[Tensor, Tensor]:
        from torch.nn import functional

        window = (kernel, stride, padding, dilation, ceil)
        if not indices:
            return functional.max_pool2d(x, *window)
        largest, places = functional.max_pool2d_with_indices(x, *window)
        return largest, places


class MaxPoolBackward(Operator, frozen=True, kw_only=True):
    """Adds each gradient at the position of its window's maximum."""

    gradient_of = MaxPool

    gradient: Ref
    x: Ref
    indices: Ref
    kernel: Pair
    stride: Pair
    padding: Pair
    dilation: Pair
    ceil: bool

    @staticmethod
    def meaning(
        gradient: Tensor,
        x: Tensor,
        indices: Tensor,
        kernel: Pair,
        stride: Pair,
        padding: Pair,
        dilation: Pair,
        ceil: bool,
    ) -> Tensor:
        import torch

        found: Tensor = torch.ops.aten.max_pool2d_with_indices_backward.default(
            gradient, x, kernel, stride, padding, dilation, ceil, indices
        )
        return found


READERS = ("aten.max_pool2d_with_indices_backward.default", MaxPoolBackward.op())


def pool(call: Call) -> MaxPool | None:
    """``max_pool2d`` with or without indices; None where others than the gradient read them, as
    ``max_unpool2d`` does: a level has indices of its own form."""
    if call.rank("self") != 4:
        return None
    indices = call.node.outputs[1] if call.node.several else None
    if indices is not None and not call.only_read_by(indices.name, *READERS):
        return None
    return MaxPool(
        x=call.ref("self"),
        kernel=call.pair("kernel_size"),
        stride=call.pool_stride(),
        padding=call.pair("padding"),
        dilation=call.pair("dilation"),
        ceil=call.flag("ceil_mode"),
        indices=call.node.several,
    )


def backward(call: Call) -> MaxPoolBackward | None:
    """``max_pool2d_with_indices_backward`` of indices that nothing else reads."""
    if call.rank("self") != 4 or not call.only_read_by(call.ref("indices").name, *READERS):
        return None
    return MaxPoolBackward(
        gradient=call.ref("grad_output"),
        x=call.ref("self"),
        indices=call.ref("indices"),
        kernel=call.pair("kernel_size"),
        stride=call.pool_stride(),
        padding=call.pair("padding"),
        dilation=call.pair("dilation"),
        ceil=call.flag("ceil_mode"),
    )


SPELLINGS = {
    "aten.max_pool2d.default": pool,
    "aten.max_pool2d_with_indices.default": pool,
    "aten.max_pool2d_with_indices_backward.default": backward,
}
