"""Pooling of volumes: first along the depth, then in each plane."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

aten = torch.ops.aten


def _each(sizes: Sequence[int]) -> tuple[int, int, int]:
    return tuple(sizes) if len(sizes) == 3 else (sizes[0],) * 3  # type: ignore[return-value]


def average(
    self: Tensor,
    kernel_size: Sequence[int],
    stride: Sequence[int] = (),
    padding: Sequence[int] = (0,),
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
) -> Any:
    """``avg_pool3d`` whose windows all have one size."""
    kernel, steps, sides = _each(kernel_size), _each(stride or kernel_size), _each(padding)
    if ceil_mode or divisor_override is not None or not (count_include_pad or not any(sides)):
        return NotImplemented
    n, c, d, h, w = self.shape
    flat = self.reshape(n, c, d, h * w)
    flat = aten.avg_pool2d.default(flat, [kernel[0], 1], [steps[0], 1], [sides[0], 0])
    planes = flat.reshape(n, c * flat.shape[2], h, w)
    planes = aten.avg_pool2d.default(planes, kernel[1:], steps[1:], sides[1:])
    return planes.reshape(n, c, flat.shape[2], *planes.shape[2:])


def average_backward(
    grad_output: Tensor,
    self: Tensor,
    kernel_size: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    ceil_mode: bool,
    count_include_pad: bool,
    divisor_override: int | None,
) -> Any:
    """Its gradient, in the opposite order."""
    kernel, steps, sides = _each(kernel_size), _each(stride or kernel_size), _each(padding)
    if ceil_mode or divisor_override is not None or not (count_include_pad or not any(sides)):
        return NotImplemented
    n, c, d, h, w = self.shape
    depth = grad_output.shape[2]
    planes = grad_output.reshape(n, c * depth, *grad_output.shape[3:])
    like = torch.zeros([n, c * depth, h, w], dtype=self.dtype)
    planes = aten.avg_pool2d_backward.default(
        planes, like, kernel[1:], steps[1:], sides[1:], False, True, None
    )
    flat = planes.reshape(n, c, depth, h * w)
    like = torch.zeros([n, c, d, h * w], dtype=self.dtype)
    flat = aten.avg_pool2d_backward.default(
        flat, like, [kernel[0], 1], [steps[0], 1], [sides[0], 0], False, True, None
    )
    return flat.reshape(n, c, d, h, w)


def largest(
    self: Tensor,
    kernel_size: Sequence[int],
    stride: Sequence[int] = (),
    padding: Sequence[int] = (0,),
    dilation: Sequence[int] = (1,),
    ceil_mode: bool = False,
) -> Any:
    """``max_pool3d`` without its indices, which only the gradient reads."""
    kernel, steps, sides = _each(kernel_size), _each(stride or kernel_size), _each(padding)
    apart = _each(dilation)
    n, c, d, h, w = self.shape
    flat = aten.max_pool2d.default(
        self.reshape(n, c, d, h * w), [kernel[0], 1], [steps[0], 1], [sides[0], 0], [apart[0], 1],
        ceil_mode,
    )  # fmt: skip
    planes = aten.max_pool2d.default(
        flat.reshape(n, c * flat.shape[2], h, w), kernel[1:], steps[1:], sides[1:], apart[1:],
        ceil_mode,
    )  # fmt: skip
    return planes.reshape(n, c, flat.shape[2], *planes.shape[2:])


DEFINITIONS = {
    "aten.avg_pool3d.default": average,
    "aten.avg_pool3d_backward.default": average_backward,
    "aten.max_pool3d.default": largest,
}
