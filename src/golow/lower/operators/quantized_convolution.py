"""Convolution of whole numbers of 8 bits, with fused scale, bias, residual, activation and
rounding."""

from __future__ import annotations

from typing import TYPE_CHECKING

from golow.lower.ir.graph import Activation, Ref
from golow.lower.ir.operator import Operator
from golow.lower.operators.activation import activated
from golow.lower.operators.convolution import Convolution, Sizes, require_axes
from golow.lower.operators.quantize import Quantize

if TYPE_CHECKING:
    from torch import Tensor


class QuantizedConvolution(Operator, frozen=True, kw_only=True):
    """activation(convolution(x, weight) * scale + bias + residual). The sums are exact.

    x: int8 or uint8 [N, C, H, W]; weight: int8 [K, C / groups, R, S]; scale and bias: [K];
    residual: the result's shape; the other arguments: as of `Convolution`. result_scale: one
    number; the result is then that of `Quantize` with it and ``result_type``.
    """

    x: Ref
    weight: Ref
    scale: Ref
    bias: Ref | None = None
    residual: Ref | None = None
    stride: Sizes = (1, 1)
    padding: Sizes = (0, 0, 0, 0)
    dilation: Sizes = (1, 1)
    groups: int = 1
    activation: Activation | None = None
    result_scale: Ref | None = None
    result_type: str = "float32"

    def __post_init__(self) -> None:
        require_axes(self.stride, self.padding, self.dilation)

    @staticmethod
    def meaning(
        x: Tensor,
        weight: Tensor,
        scale: Tensor,
        bias: Tensor | None,
        residual: Tensor | None,
        stride: Sizes,
        padding: Sizes,
        dilation: Sizes,
        groups: int,
        activation: Activation | None,
        result_scale: Tensor | None,
        result_type: str,
    ) -> Tensor:
        sums = Convolution.meaning(
            x.double(), weight.double(), None, None, stride, padding, dilation, groups, None
        )
        wide = (-1, *[1] * len(stride))
        y = sums * scale.double().reshape(wide)
        y = (y if bias is None else y + bias.double().reshape(wide)).to(scale.dtype)
        y = activated(y if residual is None else y + residual, activation)
        return y if result_scale is None else Quantize.meaning(y, result_scale, result_type)
