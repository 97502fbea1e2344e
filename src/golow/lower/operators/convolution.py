"""Convolution of an image or a volume, with fused bias, residual and activation, and its
gradients."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from golow.lower.ir.graph import Activation, Ref
from golow.lower.ir.operator import Operator
from golow.lower.operators.activation import activated

if TYPE_CHECKING:
    from torch import Tensor

    from golow.lower.ir.spelling import Call


Sizes = tuple[int, ...]


def require_axes(stride: Sizes, padding: Sizes, dilation: Sizes) -> None:
    """Raise ValueError unless they are of the two axes of an image, or the three of a volume."""
    axes = len(stride)
    if axes not in (2, 3) or len(dilation) != axes or len(padding) != 2 * axes:
        raise ValueError(f"stride {stride}, padding {padding} and dilation {dilation} do not fit")


class Convolution(Operator, frozen=True, kw_only=True):
    """activation(convolution(x, weight) + bias + residual), with zero padding on all sides.

    x: [N, C, H, W]; weight: [K, C / groups, R, S]; bias: [K]; residual: the result's shape.
    padding: top, left, bottom, right. Of a volume [N, C, D, H, W] all have a third axis; only the
    pass `golow.lower.images.volumes` makes these.
    """

    x: Ref
    weight: Ref
    bias: Ref | None = None
    residual: Ref | None = None
    stride: Sizes = (1, 1)
    padding: Sizes = (0, 0, 0, 0)
    dilation: Sizes = (1, 1)
    groups: int = 1
    activation: Activation | None = None

    def __post_init__(self) -> None:
        require_axes(self.stride, self.padding, self.dilation)

    @staticmethod
    def meaning(
        x: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        residual: Tensor | None,
        stride: Sizes,
        padding: Sizes,
        dilation: Sizes,
        groups: int,
        activation: Activation | None,
    ) -> Tensor:
        import torch
        from torch.nn import functional

        axes, none = len(stride), [0] * len(stride)
        ends = zip(padding[:axes][::-1], padding[axes:][::-1], strict=True)
        padded = functional.pad(x, [side for both in ends for side in both])
        y = torch.ops.aten.convolution.default(
            padded, weight, bias, stride, none, dilation, False, none, groups
        )
        return activated(y if residual is None else y + residual, activation)


class ConvolutionBackward(Operator, frozen=True, kw_only=True):
    """Gradients of x, weight and bias, those that are wanted.

    padding: as of `Convolution`; opposite sides are equal. compact: of the gradient of x only the
    pixels that windows of one pixel read, [N, C, P, Q]; all others are zero.
    """

    gradient_of = Convolution

    gradient: Ref
    x: Ref
    weight: Ref
    stride: Sizes
    padding: Sizes
    dilation: Sizes
    groups: int
    wanted: tuple[bool, bool, bool]
    compact: bool = False

    def __post_init__(self) -> None:
        require_axes(self.stride, self.padding, self.dilation)

    @property
    def results(self) -> int:
        return 3

    @staticmethod
    def meaning(
        gradient: Tensor,
        x: Tensor,
        weight: Tensor,
        stride: Sizes,
        padding: Sizes,
        dilation: Sizes,
        groups: int,
        wanted: tuple[bool, bool, bool],
        compact: bool = False,
    ) -> tuple[Tensor, ...]:
        import torch

        axes = len(stride)
        of_x, *others = torch.ops.aten.convolution_backward.default(
            gradient, x, weight, [weight.shape[0]], stride, padding[:axes], dilation, False,
            [0] * axes, groups, wanted,
        )  # fmt: skip
        return (of_x[:, :, :: stride[0], :: stride[1]] if compact else of_x, *others)


def convolution(call: Call) -> Convolution | None:
    """``conv2d`` and ``convolution`` of batched images."""
    return of_axes(call, 2)


def of_axes(call: Call, axes: int) -> Convolution | None:
    """A convolution over this many axes of a batch, not transposed."""
    transposed = "transposed" in call.names and call.flag("transposed")
    if call.rank("input") != axes + 2 or transposed:
        return None
    return _spelled(call, **geometry(call, axes))


def padded_by_name(call: Call) -> Convolution | None:
    """``conv2d`` with the padding "valid" or "same"."""
    return padded_by_name_of_axes(call, 2)


def padded_by_name_of_axes(call: Call, axes: int) -> Convolution | None:
    """A convolution over this many axes with the padding "valid" or "same"; an odd total is larger
    at the end."""
    if call.rank("input") != axes + 2:
        return None
    kernel = call.shape("weight")[2:]
    same = call.text("padding") == "same"
    reach = zip(call.sizes("dilation", axes), kernel, strict=True)
    total = [d * (k - 1) if same else 0 for d, k in reach]
    before = [size // 2 for size in total]
    after = [size - first for size, first in zip(total, before, strict=True)]
    return _spelled(call, **geometry(call, axes, (*before, *after)))


def geometry(call: Call, axes: int, padding: Sizes = ()) -> dict[str, Any]:
    """Strides, padding, dilation and groups of a call, as the records have them. padding: instead
    of the call's numbers."""
    return {
        "stride": call.sizes("stride", axes),
        "padding": padding or call.sizes("padding", axes) * 2,
        "dilation": call.sizes("dilation", axes),
        "groups": call.integer("groups"),
    }


def _spelled(call: Call, **where: Any) -> Convolution:
    x, weight = call.ref("input"), call.ref("weight")
    return Convolution(x=x, weight=weight, bias=call.ref_or_none("bias"), **where)


def backward(call: Call) -> ConvolutionBackward | None:
    """``convolution_backward`` of images, not transposed."""
    return backward_of_axes(call, 2)


def backward_of_axes(call: Call, axes: int) -> ConvolutionBackward | None:
    """The gradients of a convolution over this many axes, not transposed."""
    if call.rank("input") != axes + 2 or call.flag("transposed"):
        return None
    of_x, of_weight, of_bias = call.flags("output_mask")
    return ConvolutionBackward(
        gradient=call.ref("grad_output"),
        x=call.ref("input"),
        weight=call.ref("weight"),
        wanted=(of_x, of_weight, of_bias),
        **geometry(call, axes),
    )


SPELLINGS = {
    "aten.conv2d.default": convolution,
    "aten.convolution.default": convolution,
    "aten.conv2d.padding": padded_by_name,
    "aten.convolution_backward.default": backward,
}
