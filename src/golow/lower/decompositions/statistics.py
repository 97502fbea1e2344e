"""Variances, norms over groups and roots of mean squares, by sums and arithmetic."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

aten = torch.ops.aten


def var_mean(
    self: Tensor,
    dim: Sequence[int] | None = None,
    *,
    correction: float | None = None,
    keepdim: bool = False,
) -> tuple[Tensor, Tensor]:
    """The variance from the mean, not from the sum of squares."""
    axes = [axis % self.dim() for axis in dim] if dim and self.dim() else list(range(self.dim()))
    count = math.prod(self.shape[axis] for axis in axes)
    mean = self.mean(axes, keepdim=True)
    centred = self - mean
    less = 1 if correction is None else correction
    variance = (centred * centred).sum(axes, keepdim=True) * (1 / max(count - less, 0.0) if
                count > less else math.nan)  # fmt: skip
    if not keepdim:
        variance, mean = (aten.squeeze.dims(x, axes) for x in (variance, mean))
    return variance, mean


def variance(
    self: Tensor,
    dim: Sequence[int] | None = None,
    *,
    correction: float | None = None,
    keepdim: bool = False,
) -> Tensor:
    """``var``."""
    return var_mean(self, dim, correction=correction, keepdim=keepdim)[0]


def group_norm(
    input: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    N: int,
    C: int,
    HxW: int,
    group: int,
    eps: float,
) -> tuple[Tensor, Tensor, Tensor]:
    """Layer norm of each group, then a scale and shift of each channel."""
    rows = input.reshape(N * group, C // group * HxW)
    normed, mean, deviation = aten.native_layer_norm.default(
        rows, [C // group * HxW], None, None, eps
    )
    result = normed.reshape(input.shape)
    wide = [1, C] + [1] * (input.dim() - 2)
    if weight is not None:
        result = result * weight.reshape(wide)
    if bias is not None:
        result = result + bias.reshape(wide)
    return result, mean.reshape(N, group), deviation.reshape(N, group)


def group_norm_backward(
    grad_out: Tensor,
    input: Tensor,
    mean: Tensor,
    rstd: Tensor,
    weight: Tensor | None,
    N: int,
    C: int,
    HxW: int,
    group: int,
    output_mask: Sequence[bool],
) -> Any:
    """The gradients of the input, the weight and the bias."""
    wide = [1, C] + [1] * (input.dim() - 2)
    size = C // group * HxW
    rows = input.reshape(N * group, size)
    means, deviations = mean.reshape(N * group, 1), rstd.reshape(N * group, 1)
    normed = ((rows - means) * deviations).reshape(input.shape)
    others = [0, *range(2, input.dim())]
    of_bias = grad_out.sum(others) if output_mask[2] else None
    of_weight = (grad_out * normed).sum(others) if output_mask[1] else None
    of_input = None
    if output_mask[0]:
        scaled = grad_out if weight is None else grad_out * weight.reshape(wide)
        of_input = aten.native_layer_norm_backward.default(
            scaled.reshape(N * group, size), rows, [size], means, deviations, None, None,
            [True, False, False],
        )[0].reshape(input.shape)  # fmt: skip
    return of_input, of_weight, of_bias


def rms_norm(
    input: Tensor,
    normalized_shape: Sequence[int],
    weight: Tensor | None = None,
    eps: float | None = None,
) -> Tensor:
    """x / sqrt(mean(x^2) + epsilon) * weight."""
    axes = list(range(input.dim() - len(normalized_shape), input.dim()))
    epsilon = torch.finfo(input.dtype).eps if eps is None else eps
    scale = torch.rsqrt((input * input).mean(axes, keepdim=True) + epsilon)
    result = input * scale
    return result if weight is None else result * weight


def fused_rms_norm(
    input: Tensor, normalized_shape: Sequence[int], weight: Tensor | None, eps: float | None
) -> tuple[Tensor, Tensor]:
    """RMS norm, and the scale of each row."""
    axes = list(range(input.dim() - len(normalized_shape), input.dim()))
    epsilon = torch.finfo(input.dtype).eps if eps is None else eps
    scale = torch.rsqrt((input * input).mean(axes, keepdim=True) + epsilon)
    result = input * scale
    return (result if weight is None else result * weight), scale


def fused_rms_norm_backward(
    grad_out: Tensor,
    input: Tensor,
    normalized_shape: Sequence[int],
    rstd: Tensor,
    weight: Tensor | None,
    output_mask: Sequence[bool],
) -> Any:
    """The gradients of the input and the weight."""
    inner = list(range(input.dim() - len(normalized_shape), input.dim()))
    outer = list(range(input.dim() - len(normalized_shape)))
    normed = input * rstd
    scaled = grad_out if weight is None else grad_out * weight
    of_input = (scaled - normed * (scaled * normed).mean(inner, keepdim=True)) * rstd
    of_weight = None
    if weight is not None and output_mask[1]:
        of_weight = (grad_out * normed).sum(outer) if outer else grad_out * normed
    return of_input, of_weight


def weight_norm_backward(
    grad_w: Tensor, saved_v: Tensor, saved_g: Tensor, saved_norms: Tensor, dim: int
) -> tuple[Tensor, Tensor]:
    """The gradients of v and g for w = g v / |v|, where |v| is over all axes but one."""
    axes = [axis for axis in range(saved_v.dim()) if axis != dim % saved_v.dim()]
    norms = saved_norms.reshape(saved_g.shape)
    product = (grad_w * saved_v).sum(axes, keepdim=True)
    of_v = (saved_g / norms) * (grad_w - saved_v * product / (norms * norms))
    return of_v, product / norms


def any_of(self: Tensor, dim: Any = None, keepdim: bool = False) -> Tensor:
    """True if any element is not zero."""
    axes = list(range(self.dim())) if dim is None else [dim] if isinstance(dim, int) else list(dim)
    return aten.amax.default((self != 0).to(torch.int64), axes, keepdim) != 0


def all_of(self: Tensor, dim: Any = None, keepdim: bool = False) -> Tensor:
    """True if no element is zero."""
    axes = list(range(self.dim())) if dim is None else [dim] if isinstance(dim, int) else list(dim)
    return aten.amin.default((self != 0).to(torch.int64), axes, keepdim) != 0


def sum_all(self: Tensor, *, dtype: torch.dtype | None = None) -> Any:
    """A sum that converts first."""
    return sum_axes(self, list(range(self.dim())), False, dtype=dtype)


def sum_axes(
    self: Tensor,
    dim: Sequence[int] | None,
    keepdim: bool = False,
    *,
    dtype: torch.dtype | None = None,
) -> Any:
    """A sum that converts first."""
    kind = dtype or (self.dtype if self.dtype.is_floating_point else torch.int64)
    if kind == self.dtype:
        return NotImplemented
    return aten.sum.dim_IntList(self.to(kind), dim, keepdim)


def clamp(self: Tensor, min: Any = None, max: Any = None) -> Any:
    """Two bounds, one after the other."""
    tensors = isinstance(min, Tensor) or isinstance(max, Tensor)
    low = aten.clamp_min.Tensor if tensors else aten.clamp_min.default
    high = aten.clamp_max.Tensor if tensors else aten.clamp_max.default
    if min is not None:
        self = low(self, min)
    return high(self, max) if max is not None else self


def add_scaled(self: Tensor, other: Any, *, alpha: float = 1) -> Any:
    """``add`` with a factor."""
    if alpha == 1:
        return NotImplemented
    return self + other * alpha


def subtract_scaled(self: Tensor, other: Any, *, alpha: float = 1) -> Any:
    """``sub`` with a factor."""
    if alpha == 1:
        return NotImplemented
    return self - other * alpha


def addmm(self: Tensor, mat1: Tensor, mat2: Tensor, *, beta: float = 1, alpha: float = 1) -> Tensor:
    """A product and a sum."""
    product = aten.mm.default(mat1, mat2)
    product = product if alpha == 1 else product * alpha
    return product + (self if beta == 1 else self * beta)


def baddbmm(
    self: Tensor, batch1: Tensor, batch2: Tensor, *, beta: float = 1, alpha: float = 1
) -> Tensor:
    """A batched product and a sum."""
    product = aten.bmm.default(batch1, batch2)
    product = product if alpha == 1 else product * alpha
    return product if beta == 0 else product + (self if beta == 1 else self * beta)


def softmax(self: Tensor, dim: int, dtype: torch.dtype | None = None) -> Any:
    """softmax that converts first."""
    if dtype is None or dtype == self.dtype:
        return NotImplemented
    return torch.softmax(self.to(dtype), dim)


def log_softmax(self: Tensor, dim: int, dtype: torch.dtype | None = None) -> Any:
    """log softmax that converts first."""
    if dtype is None or dtype == self.dtype:
        return NotImplemented
    return torch.log_softmax(self.to(dtype), dim)


def vector_norm(
    self: Tensor,
    ord: float = 2,
    dim: Sequence[int] | None = None,
    keepdim: bool = False,
    *,
    dtype: torch.dtype | None = None,
) -> Any:
    """The root of the sum of squares; other norms have PyTorch's definition."""
    if ord != 2 or dtype is not None:
        return NotImplemented
    axes = list(range(self.dim())) if dim is None else list(dim)
    return torch.sqrt((self * self).sum(axes, keepdim=keepdim))


def histogram(self: Tensor, bins: int = 100, min: float = 0, max: float = 0) -> Any:
    """``histc`` between given limits: how many elements are in each of equal ranges, of which the
    last one has its upper limit, too."""
    if min >= max:
        return NotImplemented  # the limits are the smallest and the largest element
    elements = self.reshape(-1, 1)
    places = aten.clamp_max.default(((elements - min) * bins / (max - min)).floor(), bins - 1)
    within = torch.logical_and(elements >= min, elements <= max)
    found = torch.logical_and(within, places == torch.arange(bins))
    return found.to(self.dtype).sum(0)


DEFINITIONS = {
    "aten.histc.default": histogram,
    "aten.var_mean.correction": var_mean,
    "aten.var.correction": variance,
    "aten.native_group_norm.default": group_norm,
    "aten.native_group_norm_backward.default": group_norm_backward,
    "aten.rms_norm.default": rms_norm,
    "aten._fused_rms_norm.default": fused_rms_norm,
    "aten._fused_rms_norm_backward.default": fused_rms_norm_backward,
    "aten._weight_norm_interface_backward.default": weight_norm_backward,
    "aten.any.default": any_of,
    "aten.any.dim": any_of,
    "aten.any.dims": any_of,
    "aten.all.default": all_of,
    "aten.all.dim": all_of,
    "aten.all.dims": all_of,
    "aten.sum.default": sum_all,
    "aten.sum.dim_IntList": sum_axes,
    "aten.clamp.default": clamp,
    "aten.clamp.Tensor": clamp,
    "aten.add.Tensor": add_scaled,
    "aten.sub.Tensor": subtract_scaled,
    "aten.addmm.default": addmm,
    "aten.baddbmm.default": baddbmm,
    "aten.softmax.int": softmax,
    "aten.log_softmax.int": log_softmax,
    "aten.linalg_vector_norm.default": vector_norm,
}
