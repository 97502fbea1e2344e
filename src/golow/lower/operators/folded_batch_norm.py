"""Weight and bias of a layer into which the batch norm, or a scale, after it is folded."""

from __future__ import annotations

from typing import TYPE_CHECKING

from golow.lower.ir.graph import Ref
from golow.lower.ir.operator import Operator

if TYPE_CHECKING:
    from torch import Tensor


class FoldedWeight(Operator, frozen=True, kw_only=True):
    """The weight of a convolution or linear layer, multiplied by the factor of the norm after it.
    Without a variance that is the scale alone, and a bias may be in the weight's place.

    Computed in float64 and rounded once, by the method of
    ``torch.nn.utils.fusion.fuse_conv_bn_weights``.
    """

    weight: Ref
    scale: Ref | None
    variance: Ref | None
    epsilon: float

    @staticmethod
    def meaning(
        weight: Tensor, scale: Tensor | None, variance: Tensor | None, epsilon: float
    ) -> Tensor:
        factor = _factor(scale, variance, epsilon)
        return (weight.double() * factor.reshape(-1, *[1] * (weight.dim() - 1))).to(weight.dtype)


class FoldedBias(Operator, frozen=True, kw_only=True):
    """The bias that belongs to a `FoldedWeight`."""

    bias: Ref | None
    scale: Ref | None
    shift: Ref | None
    mean: Ref
    variance: Ref
    epsilon: float

    @staticmethod
    def meaning(
        bias: Tensor | None,
        scale: Tensor | None,
        shift: Tensor | None,
        mean: Tensor,
        variance: Tensor,
        epsilon: float,
    ) -> Tensor:
        centred = -mean.double() if bias is None else bias.double() - mean.double()
        result = centred * _factor(scale, variance, epsilon)
        return (result if shift is None else result + shift.double()).to(mean.dtype)


def _factor(scale: Tensor | None, variance: Tensor | None, epsilon: float) -> Tensor:
    import torch

    factor = torch.ones(()).double() if variance is None else (variance.double() + epsilon).rsqrt()
    return factor if scale is None else factor * scale.double()
