"""Mean pooling of volumes: first along the depth, then in each plane. Windows that differ in size
are products with a matrix along each axis."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from golow.lower.decompositions.resize import along

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
    """``avg_pool3d``."""
    kernel, steps, sides = _each(kernel_size), _each(stride or kernel_size), _each(padding)
    if self.dim() != 5:
        return NotImplemented
    if ceil_mode or divisor_override is not None or not (count_include_pad or not any(sides)):
        axes = zip(self.shape[2:], kernel, steps, sides, strict=True)
        sizes = [_windows(*axis, ceil_mode) for axis in axes]
        geometry = (sizes, kernel, steps, sides, count_include_pad, divisor_override)
        for index, means in enumerate(_uneven(self.shape[2:], *geometry)):
            self = along(self, 2 + index, means)
        return self.clone()
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
    if self.dim() != 5:
        return NotImplemented
    if ceil_mode or divisor_override is not None or not (count_include_pad or not any(sides)):
        geometry = (kernel, steps, sides, count_include_pad, divisor_override)
        for index, means in enumerate(_uneven(self.shape[2:], grad_output.shape[2:], *geometry)):
            grad_output = along(grad_output, 2 + index, means.transpose(0, 1))
        return grad_output.clone()
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


def _sums(size: int, new: int, kernel: int, stride: int, padding: int) -> tuple[Tensor, Tensor]:
    """float32 [new, size] with 1 where an element is in a window, and [new], how many elements of
    the padded axis are."""
    starts = (torch.arange(new) * stride - padding).unsqueeze(1)
    places = torch.arange(size).unsqueeze(0)
    inside = torch.logical_and(places >= starts, places < starts + kernel)
    ends = aten.clamp_max.default(starts + kernel, size + padding)
    return inside.to(torch.float32), (ends - starts).squeeze(1).to(torch.float32)


def _uneven(
    shape: Sequence[int],
    sizes: Sequence[int],
    kernel: Sequence[int],
    steps: Sequence[int],
    sides: Sequence[int],
    with_padding: bool,
    divisor: int | None,
) -> list[Tensor]:
    """For each axis the matrix of its means; the divisor is in the first."""
    found = []
    for index, (size, new) in enumerate(zip(shape, sizes, strict=True)):
        inside, padded = _sums(size, new, kernel[index], steps[index], sides[index])
        if divisor is not None:
            found.append(inside / divisor if index == 0 else inside)
        else:
            count = padded if with_padding else inside.sum(1)
            found.append(inside / count.unsqueeze(1))
    return found


def _windows(size: int, kernel: int, stride: int, padding: int, ceil: bool) -> int:
    """How many windows begin among the elements or the padding before them."""
    count = (size + 2 * padding - kernel + (stride - 1 if ceil else 0)) // stride + 1
    return count - 1 if ceil and (count - 1) * stride >= size + padding else count


def adaptive(self: Tensor, output_size: Sequence[int]) -> Any:
    """``_adaptive_avg_pool3d``."""
    if self.dim() != 5:
        return NotImplemented
    for index, new in enumerate(output_size):
        self = along(self, 2 + index, _shares(self.shape[2 + index], new))
    return self.clone()


def adaptive_backward(grad_output: Tensor, self: Tensor) -> Any:
    """Its gradient."""
    if self.dim() != 5:
        return NotImplemented
    found = grad_output
    for axis in range(2, 5):
        shares = _shares(self.shape[axis], grad_output.shape[axis])
        found = along(found, axis, shares.transpose(0, 1))
    return found.clone()


def _shares(size: int, new: int) -> Tensor:
    """[new, size]: 1 / count for the elements from floor(i size / new) to ceil((i + 1) size /
    new)."""
    steps = torch.arange(new).unsqueeze(1)
    starts = aten.floor_divide.Scalar(steps * size, new)
    ends = -aten.floor_divide.Scalar(-(steps + 1) * size, new)
    places = torch.arange(size).unsqueeze(0)
    inside = torch.logical_and(places >= starts, places < ends)
    return inside.to(torch.float32) / (ends - starts)


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
    "aten._adaptive_avg_pool3d.default": adaptive,
    "aten._adaptive_avg_pool3d_backward.default": adaptive_backward,
    "aten.avg_pool3d.default": average,
    "aten.avg_pool3d_backward.default": average_backward,
    "aten.max_pool3d.default": largest,
}
