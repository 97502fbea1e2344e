"""Normalisation over the last axes of each sample (layer norm, RMS norm), and its gradient."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from golow.lower.ir.graph import Ref
from golow.lower.ir.operator import Operator
from golow.lower.operators.quantize import with_rounded

if TYPE_CHECKING:
    from torch import Tensor

    from golow.lower.ir.spelling import Call


class LayerNorm(Operator, frozen=True, kw_only=True):
    """(x - mean) / sqrt(variance + epsilon) * weight + bias over the last ``axes`` axes, and the
    mean and 1 / sqrt(variance + epsilon) of each row, which keep their axes with size 1.
    result_scale: one number; a further result is then that of `Quantize` of the first with it and
    ``result_type``."""

    x: Ref
    weight: Ref | None
    bias: Ref | None
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
        weight: Tensor | None,
        bias: Tensor | None,
        axes: int,
        epsilon: float,
        result_scale: Tensor | None = None,
        result_type: str = "",
    ) -> tuple[Any, ...]:
        import torch

        shape = x.shape[x.dim() - axes :]
        result: tuple[Any, ...] = torch.ops.aten.native_layer_norm.default(
            x, shape, weight, bias, epsilon
        )
        return with_rounded(result, result_scale, result_type)


class LayerNormBackward(Operator, frozen=True, kw_only=True):
    """The gradients of x, weight and bias, from what `LayerNorm` returns. added: another gradient
    of x, which is added to the first result."""

    gradient_of = LayerNorm

    gradient: Ref
    x: Ref
    mean: Ref
    deviation: Ref
    weight: Ref | None
    bias: Ref | None
    axes: int
    added: Ref | None = None

    @property
    def results(self) -> int:
        return 3

    @staticmethod
    def meaning(
        gradient: Tensor,
        x: Tensor,
        mean: Tensor,
        deviation: Tensor,
        weight: Tensor | None,
        bias: Tensor | None,
        axes: int,
        added: Tensor | None = None,
    ) -> tuple[Any, ...]:
        import torch

        mask = [True, weight is not None, bias is not None]
        of_x, *others = torch.ops.aten.native_layer_norm_backward.default(
            gradient, x, x.shape[x.dim() - axes :], mean, deviation, weight, bias, mask
        )
        return (of_x if added is None else of_x + added, *others)


def layer_norm(call: Call) -> LayerNorm:
    """``native_layer_norm(input, normalized_shape, weight, bias, eps)``."""
    return LayerNorm(
        x=call.ref("input"),
        weight=call.ref_or_none("weight"),
        bias=call.ref_or_none("bias"),
        axes=len(call.integers("normalized_shape")),
        epsilon=call.number("eps"),
    )


def layer_norm_backward(call: Call) -> LayerNormBackward:
    """``native_layer_norm_backward``; what its mask leaves out has no reader."""
    return LayerNormBackward(
        gradient=call.ref("grad_out"),
        x=call.ref("input"),
        mean=call.ref("mean"),
        deviation=call.ref("rstd"),
        weight=call.ref_or_none("weight"),
        bias=call.ref_or_none("bias"),
        axes=len(call.integers("normalized_shape")),
    )


SPELLINGS = {
    "aten.native_layer_norm.default": layer_norm,
    "aten.native_layer_norm_backward.default": layer_norm_backward,
}
