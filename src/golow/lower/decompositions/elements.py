"""Functions of elements by those that the vocabulary has. Each is exact to some roundings of
float32, also where the plain formula would cancel or overflow."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

aten = torch.ops.aten


def _cathetus(x: Tensor) -> Tensor:
    """sqrt(1 - x^2)."""
    return torch.sqrt((1 - x) * (1 + x))


def arc_sine(self: Tensor) -> Tensor:
    """``asin``."""
    return torch.atan2(self, _cathetus(self))


def arc_cosine(self: Tensor) -> Tensor:
    """``acos``."""
    return torch.atan2(_cathetus(self), self)


def inverse_hyperbolic_sine(self: Tensor) -> Tensor:
    """``asinh``; of large numbers log(2 x), whose square would overflow."""
    size = torch.abs(self)
    within = aten.clamp_max.default(size, 1e9)
    square = within * within
    small = torch.log1p(within + square / (1 + torch.sqrt(square + 1)))
    large = torch.log(size) + math.log(2)
    return torch.where(size > 1e9, large, small) * torch.sign(self)


def inverse_hyperbolic_cosine(self: Tensor) -> Tensor:
    """``acosh``; NaN below 1."""
    less = self - 1
    small = torch.log1p(less + torch.sqrt(less) * torch.sqrt(self + 1))
    return torch.where(self > 1e18, torch.log(self) + math.log(2), small)


def inverse_hyperbolic_tangent(self: Tensor) -> Tensor:
    """``atanh``."""
    size = torch.abs(self)
    return torch.log1p(2 * size / (1 - size)) * 0.5 * torch.sign(self)


def hypotenuse(self: Tensor, other: Tensor) -> Tensor:
    """``hypot``, without squares that overflow."""
    a, b = torch.abs(self), torch.abs(other)
    large, small = torch.maximum(a, b), torch.minimum(a, b)
    ratio = torch.where(large == 0, 0.0, small / large)
    found = large * torch.sqrt(1 + ratio * ratio)
    return torch.where(torch.isinf(large), math.inf, found)


def with_sign(self: Tensor, other: Any) -> Any:
    """``copysign``; a zero has the sign of its reciprocal."""
    if not self.dtype.is_floating_point:
        return NotImplemented
    size = torch.abs(self)
    if not isinstance(other, Tensor):
        return size if math.copysign(1, other) > 0 else -size
    sign = torch.where(other == 0, torch.reciprocal(other), other)
    return torch.where(sign < 0, -size, size)


# Coefficients of erfc(|x|) = t exp(-x^2 + P(t)) with t = 1 / (1 + |x| / 2): a fit of relative error
# 1.2e-7 on the whole line (Press et al., "Numerical Recipes", 6.2).
ERFC = (
    -1.26551223, 1.00002368, 0.37409196, 0.09678418, -0.18628806, 0.27886807, -1.13520398,
    1.48851587, -0.82215223, 0.17087277,
)  # fmt: skip


def complementary_error_function(self: Tensor) -> Tensor:
    """``erfc``, also where 1 - erf(x) would cancel."""
    size = torch.abs(self)
    t = 1 / (1 + 0.5 * size)
    tail = t * torch.exp(-size * size + _polynomial(t, ERFC))
    return torch.where(self > 0.5, tail, 1 - torch.erf(self))


# Coefficients of erfinv(x) = x P(w) with w = -log(1 - x^2), near the middle in w - 2.5 and near the
# ends in sqrt(w) - 3 (Giles 2010, "Approximating the erfinv function").
MIDDLE = (
    1.50140941, 0.246640727, -0.00417768164, -0.00125372503, 0.00021858087, -4.39150654e-6,
    -3.5233877e-6, 3.43273939e-7, 2.81022636e-8,
)  # fmt: skip
ENDS = (
    2.83297682, 1.00167406, 0.00943887047, -0.0076224613, 0.00573950773, -0.00367342844,
    0.00134934322, 0.000100950558, -0.000200214257,
)  # fmt: skip


def inverse_error_function(self: Tensor) -> Tensor:
    """``erfinv``."""
    w = -torch.log((1 - self) * (1 + self))
    middle = _polynomial(w - 2.5, MIDDLE)
    ends = _polynomial(torch.sqrt(aten.clamp_min.default(w, 0.0)) - 3, ENDS)
    found = self * torch.where(w < 5, middle, ends)
    return torch.where(torch.abs(self) == 1, self * math.inf, found)


def _polynomial(x: Tensor, coefficients: tuple[float, ...]) -> Any:
    total: Any = coefficients[-1]
    for coefficient in coefficients[-2::-1]:
        total = total * x + coefficient
    return total


def largest_or_zero(self: Tensor) -> Any:
    """``relu`` of integers."""
    return NotImplemented if self.dtype.is_floating_point else aten.clamp_min.default(self, 0)


def divided(self: Tensor, other: Any, *, rounding_mode: str | None) -> Any:
    """Division that rounds towards zero; of integers by the sizes, whose quotient is exact."""
    if rounding_mode != "trunc":
        return NotImplemented
    tensors = [item for item in (self, other) if isinstance(item, Tensor)]
    if any(item.dtype.is_floating_point for item in tensors) or isinstance(other, float):
        return torch.trunc(self / other)
    if not isinstance(other, Tensor):
        sizes = aten.floor_divide.Scalar(torch.abs(self), abs(other))
        return torch.sign(self) * sizes * (1 if other > 0 else -1)
    sizes = aten.floor_divide.default(torch.abs(self), torch.abs(other))
    return torch.sign(self) * torch.sign(other) * sizes


def of_mean_slope(
    self: Tensor,
    lower: float = 1 / 8,
    upper: float = 1 / 3,
    training: bool = False,
    generator: Any = None,
) -> Any:
    """``rrelu`` in inference, where the slope below zero is not drawn."""
    if training:
        return NotImplemented
    return aten.leaky_relu.default(self, (lower + upper) / 2)


def shifted_left(self: Tensor, other: int) -> Any:
    """``<<`` by a number."""
    return self * 2**other if 0 <= other < 63 else NotImplemented


def shifted_right(self: Tensor, other: int) -> Any:
    """``>>`` by a number."""
    return aten.floor_divide.Scalar(self, 2**other) if 0 <= other < 63 else NotImplemented


def rounded(self: Tensor, *, decimals: int) -> Any:
    """``round`` to this many decimals."""
    if not self.dtype.is_floating_point:
        return NotImplemented
    factor = 10.0 ** abs(decimals)
    if decimals >= 0:
        return torch.round(self * factor) / factor
    return torch.round(self / factor) * factor


DEFINITIONS = {
    "aten.relu.default": largest_or_zero,
    "aten.rrelu.default": of_mean_slope,
    "aten.asin.default": arc_sine,
    "aten.acos.default": arc_cosine,
    "aten.asinh.default": inverse_hyperbolic_sine,
    "aten.acosh.default": inverse_hyperbolic_cosine,
    "aten.atanh.default": inverse_hyperbolic_tangent,
    "aten.hypot.default": hypotenuse,
    "aten.copysign.Tensor": with_sign,
    "aten.copysign.Scalar": with_sign,
    "aten.erfc.default": complementary_error_function,
    "aten.erfinv.default": inverse_error_function,
    "aten.div.Tensor_mode": divided,
    "aten.div.Scalar_mode": divided,
    "aten.__lshift__.Scalar": shifted_left,
    "aten.bitwise_left_shift.Tensor_Scalar": shifted_left,
    "aten.__rshift__.Scalar": shifted_right,
    "aten.bitwise_right_shift.Tensor_Scalar": shifted_right,
    "aten.round.decimals": rounded,
}
