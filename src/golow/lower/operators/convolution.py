"""Convolution of an image, with fused bias, residual and activation, and its gradients."""

from __future__ import annotations

from typing import TYPE_CHECKING

from golow.lower.graph import Activation, Ref
from golow.lower.operator import Operator
from golow.lower.operators.activation import activated

if TYPE_CHECKING:
    from torch import Tensor

    from golow.lower.spelling import Call


Pair = tuple[int, int]
Sides = tuple[int, int, int, int]


class Convolution(Operator, frozen=True, kw_only=True):
    """activation(convolution(x, weight) + bias + residual), with zero padding on four sides.

    x: [N, C, H, W]; weight: [K, C / groups, R, S]; bias: [K]; residual: the result's shape.
    padding: top, left, bottom, right.
    """

    x: Ref
    weight: Ref
    bias: Ref | None = None
    residual: Ref | None = None
    stride: Pair = (1, 1)
    padding: Sides = (0, 0, 0, 0)
    dilation: Pair = (1, 1)
    groups: int = 1
    activation: Activation | None = None

    @staticmethod
    def meaning(
        x: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        residual: Tensor | None,
        stride: Pair,
        padding: Sides,
        dilation: Pair,
        groups: int,
        activation: Activation | None,
    ) -> Tensor:
        from torch.nn import functional

        top, left, bottom, right = padding
        padded = functional.pad(x, (left, right, top, bottom))
        y = functional.conv2d(padded, weight, bias, stride, 0, dilation, groups)
        return activated(y if residual is None else y + residual, activation)


class ConvolutionBackward(Operator, frozen=True, kw_only=True):
    """Gradients of x, weight and bias, those that are wanted.

    padding: top, left, bottom, right; opposite sides are equal. compact: of the gradient of x only
    the pixels that windows of one pixel read, [N, C, P, Q]; all others are zero.
    """

    gradient_of = Convolution

    gradient: Ref
    x: Ref
    weight: Ref
    stride: Pair
    padding: Sides
    dilation: Pair
    groups: int
    wanted: tuple[bool, bool, bool]
    compact: bool = False

    @property
    def results(self) -> int:
        return 3

    @staticmethod
    def meaning(
        gradient: Tensor,
        x: Tensor,
        weight: Tensor,
        stride: Pair,
        padding: Sides,
        dilation: Pair,
        groups: int,
        wanted: tuple[bool, bool, bool],
        compact: bool = False,
    ) -> tuple[Tensor, ...]:
        import torch

        of_x, *others = torch.ops.aten.convolution_backward.default(
            gradient, x, weight, [weight.shape[0]], stride, padding[:2], dilation, False, [0, 0],
            groups, wanted,
        )  # fmt: skip
        return (of_x[:, :, :: stride[0], :: stride[1]] if compact else of_x, *others)


def convolution(call: Call) -> Convolution | None:
    """``conv2d`` and ``convolution`` of batched images."""
    if call.rank("input") != 4 or ("transposed" in call.names and call.flag("transposed")):
        return None
    top, left = call.pair("padding")
    return _spelled(call, (top, left, top, left))


def padded_by_name(call: Call) -> Convolution | None:
    """``conv2d`` with the padding "valid" or "same"; an odd total is larger at the end."""
    if call.rank("input") != 4:
        return None
    kernel = call.shape("weight")[2:]
    same = call.text("padding") == "same"
    reach = zip(call.pair("dilation"), kernel, strict=True)
    total = [d * (k - 1) if same else 0 for d, k in reach]
    top, left = total[0] // 2, total[1] // 2
    return _spelled(call, (top, left, total[0] - top, total[1] - left))


def _spelled(call: Call, padding: Sides) -> Convolution:
    return Convolution(
        x=call.ref("input"),
        weight=call.ref("weight"),
        bias=call.ref_or_none("bias"),
        stride=call.pair("stride"),
        padding=padding,
        dilation=call.pair("dilation"),
        groups=call.integer("groups"),
    )


def backward(call: Call) -> ConvolutionBackward | None:
    """``convolution_backward`` of images, not transposed."""
    if call.rank("input") != 4 or call.flag("transposed"):
        return None
    of_x, of_weight, of_bias = call.flags("output_mask")
    top, left = call.pair("padding")
    return ConvolutionBackward(
        gradient=call.ref("grad_output"),
        x=call.ref("input"),
        weight=call.ref("weight"),
        stride=call.pair("stride"),
        padding=(top, left, top, left),
        dilation=call.pair("dilation"),
        groups=call.integer("groups"),
        wanted=(of_x, of_weight, of_bias),
    )


SPELLINGS = {
    "aten.conv2d.default": convolution,
    "aten.convolution.default": convolution,
    "aten.conv2d.padding": padded_by_name,
    "aten.convolution_backward.default": backward,
}
