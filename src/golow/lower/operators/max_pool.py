"""Max pooling of an image or a volume, and its gradient."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from golow.lower.ir.graph import Ref
from golow.lower.ir.operator import Operator
from golow.lower.operators.convolution import require_axes

if TYPE_CHECKING:
    from torch import Tensor

    from golow.lower.ir.spelling import Call


Sizes = tuple[int, ...]


class MaxPool(Operator, frozen=True, kw_only=True):
    """The maximum of each window of x [N, C, H, W]; with ``indices`` also its position, which only
    the gradient reads. ceil: windows may begin in the image and end beyond its padding. Only the
    pass `golow.lower.images.volumes` makes those of volumes [N, C, D, H, W]."""

    x: Ref
    kernel: Sizes
    stride: Sizes
    padding: Sizes
    dilation: Sizes
    ceil: bool
    indices: bool

    def __post_init__(self) -> None:
        require_axes(self.stride, self.padding * 2, self.dilation)

    @property
    def results(self) -> int:
        return 2 if self.indices else 1

    @staticmethod
    def meaning(
        x: Tensor,
        kernel: Sizes,
        stride: Sizes,
        padding: Sizes,
        dilation: Sizes,
        ceil: bool,
        indices: bool,
    ) -> Tensor | tuple[Tensor, Tensor]:
        from torch.nn import functional

        pool: Any = functional.max_pool2d if len(kernel) == 2 else functional.max_pool3d
        found: Tensor | tuple[Tensor, Tensor] = pool(
            x, kernel, stride, padding, dilation, ceil, return_indices=indices
        )
        return found


class MaxPoolBackward(Operator, frozen=True, kw_only=True):
    """Adds each gradient at the position of its window's maximum."""

    gradient_of = MaxPool

    gradient: Ref
    x: Ref
    indices: Ref
    kernel: Sizes
    stride: Sizes
    padding: Sizes
    dilation: Sizes
    ceil: bool

    @staticmethod
    def meaning(
        gradient: Tensor,
        x: Tensor,
        indices: Tensor,
        kernel: Sizes,
        stride: Sizes,
        padding: Sizes,
        dilation: Sizes,
        ceil: bool,
    ) -> Tensor:
        import torch

        aten = torch.ops.aten
        images, volumes = (
            getattr(aten, f"max_pool{axes}d_with_indices_backward").default for axes in (2, 3)
        )
        call: Any = images if len(kernel) == 2 else volumes
        found: Tensor = call(gradient, x, kernel, stride, padding, dilation, ceil, indices)
        return found


READERS = (
    "aten.max_pool2d_with_indices_backward.default",
    "aten.max_pool3d_with_indices_backward.default",
    MaxPoolBackward.op(),
)


def pool(call: Call) -> MaxPool | None:
    """``max_pool2d`` with or without indices."""
    return of_axes(call, 2)


def of_axes(call: Call, axes: int) -> MaxPool | None:
    """Pooling over this many axes of a batch; None where others than the gradient read its indices,
    as ``max_unpool2d`` does: each level stores indices in its own form."""
    if call.rank("self") != axes + 2:
        return None
    indices = call.node.outputs[1] if call.node.several else None
    if indices is not None and not call.only_read_by(indices.name, *READERS):
        return None
    return MaxPool(
        x=call.ref("self"),
        kernel=call.sizes("kernel_size", axes),
        stride=call.pool_stride(axes),
        padding=call.sizes("padding", axes),
        dilation=call.sizes("dilation", axes),
        ceil=call.flag("ceil_mode"),
        indices=call.node.several,
    )


def backward(call: Call) -> MaxPoolBackward | None:
    """``max_pool2d_with_indices_backward``."""
    return backward_of_axes(call, 2)


def backward_of_axes(call: Call, axes: int) -> MaxPoolBackward | None:
    """The gradient, of indices that nothing else reads."""
    if call.rank("self") != axes + 2 or not call.only_read_by(call.ref("indices").name, *READERS):
        return None
    return MaxPoolBackward(
        gradient=call.ref("grad_output"),
        x=call.ref("self"),
        indices=call.ref("indices"),
        kernel=call.sizes("kernel_size", axes),
        stride=call.pool_stride(axes),
        padding=call.sizes("padding", axes),
        dilation=call.sizes("dilation", axes),
        ceil=call.flag("ceil_mode"),
    )


SPELLINGS = {
    "aten.max_pool2d.default": pool,
    "aten.max_pool2d_with_indices.default": pool,
    "aten.max_pool2d_with_indices_backward.default": backward,
}
