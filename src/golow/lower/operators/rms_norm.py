"""Division by the root of the mean square over the last axes of each sample (Zhang and Sennrich
2019, "Root Mean Square Layer Normalization", arXiv:1910.07467), and its gradient."""

from __future__ import annotations

from typing import TYPE_CHECKING

from golow.lower.ir.graph import Ref
from golow.lower.ir.operator import Operator
from golow.lower.operators.quantize import with_rounded

if TYPE_CHECKING:
    from torch import Tensor


class RmsNorm(Operator, frozen=True, kw_only=True):
    """s / sqrt(mean(s^2) + epsilon) * weight over the last ``axes`` axes, where s is x, or the sum
    of x and a residual of its shape. Also returns 1 / sqrt(mean(s^2) + epsilon), whose normalised
    axes have size 1, and s. result_scale, result_type: as of `LayerNorm`."""

    x: Ref
    residual: Ref | None
    weight: Ref | None
    axes: int
    epsilon: float
    result_scale: Ref | None = None
    result_type: str = ""

    @property
    def results(self) -> int:
        return 3 if self.result_scale is None else 4

    @staticmethod
    def meaning(
        x: Tensor,
        residual: Tensor | None,
        weight: Tensor | None,
        axes: int,
        epsilon: float,
        result_scale: Tensor | None = None,
        result_type: str = "",
    ) -> tuple[Tensor, ...]:
        import torch

        total = x if residual is None else x + residual
        inner = list(range(x.dim() - axes, x.dim()))
        deviation = torch.rsqrt((total * total).mean(inner, keepdim=True) + epsilon)
        result = total * deviation
        result = result if weight is None else result * weight
        return with_rounded((result, deviation, total), result_scale, result_type)


class RmsNormBackward(Operator, frozen=True, kw_only=True):
    """The gradients of s and weight, from s and the second result of `RmsNorm`. added: another
    gradient of s, which is added to the first result."""

    gradient_of = RmsNorm

    gradient: Ref
    x: Ref
    deviation: Ref
    weight: Ref | None
    added: Ref | None
    axes: int

    @property
    def results(self) -> int:
        return 2

    @staticmethod
    def meaning(
        gradient: Tensor,
        x: Tensor,
        deviation: Tensor,
        weight: Tensor | None,
        added: Tensor | None,
        axes: int,
    ) -> tuple[Tensor, Tensor]:
        first = x.dim() - axes
        inner = list(range(first, x.dim()))
        normed = x * deviation
        scaled = gradient if weight is None else gradient * weight
        of_x = (scaled - normed * (scaled * normed).mean(inner, keepdim=True)) * deviation
        of_weight = (gradient * normed).flatten(0, first - 1).sum(0) if first else gradient * normed
        return (of_x if added is None else of_x + added), of_weight
