"""The largest element of each window, and its place, for windows that pooling of images lacks: of
volumes, of sizes that differ from place to place, and at places that a model draws.

One axis after the other, the last first, so that of equal elements the first in memory wins, as in
PyTorch. The gradient adds each element at its window's place.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

aten = torch.ops.aten


def _each(sizes: Sequence[int], axes: int) -> list[int]:
    return list(sizes) if len(sizes) == axes else [sizes[0]] * axes


def regular(
    size: int, new: int, kernel: int, stride: int, padding: int, dilation: int = 1
) -> Tensor:
    """int64 [new, kernel]: the elements of each window. Elements in the padding are replaced by the
    nearest of the window that exist, which changes neither the largest nor its place."""
    starts = (torch.arange(new) * stride - padding).unsqueeze(1)
    places = starts + torch.arange(kernel) * dilation
    low = aten.remainder.Scalar(places, dilation)
    high = (size - 1) - aten.remainder.Scalar((size - 1) - places, dilation)
    return torch.where(places < 0, low, torch.where(places >= size, high, places))


def adaptive(size: int, new: int) -> Tensor:
    """int64 [new, widest]: window i reaches from floor(i size / new) to ceil((i + 1) size / new);
    a narrower one repeats its last element."""
    bounds = [(i * size // new, -(-(i + 1) * size // new)) for i in range(new)]
    widest = max(end - start for start, end in bounds)
    steps = torch.arange(new)
    starts = aten.floor_divide.Scalar(steps * size, new).unsqueeze(1)
    ends = -aten.floor_divide.Scalar(-(steps + 1) * size, new).unsqueeze(1)
    return torch.minimum(starts + torch.arange(widest), ends - 1)


def _largest(x: Tensor, places: Tensor, axis: int, windows: Tensor) -> tuple[Tensor, Tensor]:
    """The largest along an axis, and its place. places: of x's elements. windows: [new, kernel]."""
    new, kernel = windows.shape
    flat = windows.reshape(-1)

    def cut(y: Tensor) -> Tensor:
        taken = aten.index_select.default(y, axis, flat)
        return taken.reshape(*y.shape[:axis], new, kernel, *y.shape[axis + 1 :])

    values = cut(x)
    winners = aten.argmax.default(values, axis + 1, True)
    found = aten.gather.default(cut(places), axis + 1, winners)
    return aten.amax.default(values, [axis + 1]), aten.squeeze.dim(found, axis + 1)


def _own_places(x: Tensor) -> Tensor:
    """The place of each element of [N, C, ...] among the elements after the second axis."""
    total: Any = torch.zeros([1] * x.dim(), dtype=torch.int64)
    step = 1
    for own in range(x.dim() - 1, 1, -1):
        shape = [-1 if a == own else 1 for a in range(x.dim())]
        total = total + (torch.arange(x.shape[own]) * step).reshape(shape)
        step *= x.shape[own]
    return total.expand(x.shape).clone()


def over(x: Tensor, windows: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
    """The largest of each window of [N, C, ...] and its place; windows: for each of the last axes,
    [new, kernel]."""
    places = _own_places(x)
    first = x.dim() - len(windows)
    for index in range(len(windows) - 1, -1, -1):
        x, places = _largest(x, places, first + index, windows[index])
    return x, places


def scattered(grad_output: Tensor, self: Tensor, indices: Tensor) -> Tensor:
    """Each gradient added at its place in zeros of the shape of self, [N, C, ...]."""
    outer = list(self.shape[:2])
    zeros = torch.zeros([*outer, self.shape[2:].numel()], dtype=self.dtype)
    flat = (indices.reshape(*outer, -1), grad_output.reshape(*outer, -1))
    return aten.scatter_add.default(zeros, 2, *flat).reshape(self.shape)


def max_pool(
    self: Tensor,
    kernel_size: Sequence[int],
    stride: Sequence[int] = (),
    padding: Sequence[int] = (0,),
    dilation: Sequence[int] = (1,),
    ceil_mode: bool = False,
) -> Any:
    """``max_pool2d_with_indices`` and ``max_pool3d_with_indices``."""
    axes = 3 if len(kernel_size) == 3 or self.dim() == 5 else 2
    if self.dim() != axes + 2:
        return NotImplemented
    kernel, sides, apart = (_each(given, axes) for given in (kernel_size, padding, dilation))
    steps = _each(stride or kernel_size, axes)
    windows = []
    for size, k, s, p, d in zip(self.shape[2:], kernel, steps, sides, apart, strict=True):
        room = size + 2 * p - d * (k - 1) - 1
        new = (room + (s - 1 if ceil_mode else 0)) // s + 1
        if ceil_mode and (new - 1) * s >= size + p:
            new -= 1  # a window must not begin beyond the elements
        windows.append(regular(size, new, k, s, p, d))
    return over(self, windows)


def max_pool_backward(
    grad_output: Tensor,
    self: Tensor,
    kernel_size: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    ceil_mode: bool,
    indices: Tensor,
) -> Any:
    """Its gradient."""
    return scattered(grad_output, self, indices) if self.dim() in (4, 5) else NotImplemented


def adaptive_max_pool(self: Tensor, output_size: Sequence[int]) -> Any:
    """``adaptive_max_pool2d`` and ``adaptive_max_pool3d``."""
    if self.dim() != len(output_size) + 2:
        return NotImplemented
    pairs = zip(self.shape[2:], output_size, strict=True)
    return over(self, [adaptive(size, new) for size, new in pairs])


def at_places(grad_output: Tensor, self: Tensor, indices: Tensor) -> Any:
    """The gradient of ``adaptive_max_pool2d`` and ``adaptive_max_pool3d``."""
    return scattered(grad_output, self, indices) if self.dim() > 3 else NotImplemented


def fractional_max_pool(
    self: Tensor, kernel_size: Sequence[int], output_size: Sequence[int], random_samples: Tensor
) -> Any:
    """``fractional_max_pool2d`` and ``fractional_max_pool3d`` of batches: windows whose places
    depend on a number in [0, 1) for each channel and axis (Graham 2014)."""
    axes = len(kernel_size)
    if self.dim() != axes + 2:
        return NotImplemented
    outer = self.shape[:2]
    flat: Any = 0
    for index, (size, new, kernel) in enumerate(
        zip(self.shape[2:], output_size, kernel_size, strict=True)
    ):
        # ATen has the samples of an image in the order of width and height.
        which = index if axes == 3 else 1 - index
        sample = aten.select.int(random_samples, 2, which).reshape(*outer, 1)
        taken = _drawn(sample, size, new, kernel)  # [N, C, new, kernel]
        shape = [*outer, *(1 for _ in range(2 * axes))]
        shape[2 + index], shape[2 + axes + index] = new, kernel
        step = self.shape[3 + index :].numel()
        flat = flat + taken.reshape(shape) * step
    flat = flat.reshape(*outer, *output_size, -1)
    given = aten.gather.default(self.reshape(*outer, -1), 2, flat.reshape(*outer, -1))
    values = given.reshape(flat.shape)
    winners = aten.argmax.default(values, values.dim() - 1, True)
    found = aten.gather.default(flat, values.dim() - 1, winners)
    return aten.amax.default(values, [-1]), aten.squeeze.dim(found, values.dim() - 1)


def _drawn(sample: Tensor, size: int, new: int, kernel: int) -> Tensor:
    """int64 [N, C, new, kernel]: the elements of each window along an axis. sample: [N, C, 1]."""
    if new > 1:
        step = (size - kernel) / (new - 1)
        moved = torch.trunc((torch.arange(new - 1) + sample) * step)
        starts = (moved - torch.trunc(sample * step)).to(torch.int64)
        last = torch.zeros([*sample.shape[:2], 1], dtype=torch.int64) + (size - kernel)
        starts = torch.cat([starts, last], 2)
    else:
        starts = torch.zeros([*sample.shape[:2], 1], dtype=torch.int64) + (size - kernel)
    return starts.unsqueeze(-1) + torch.arange(kernel)


def fractional_backward(
    grad_output: Tensor,
    self: Tensor,
    kernel_size: Sequence[int],
    output_size: Sequence[int],
    indices: Tensor,
) -> Any:
    """The gradient of fractional pooling."""
    batched = self.dim() == len(kernel_size) + 2
    return scattered(grad_output, self, indices) if batched else NotImplemented


DEFINITIONS = {
    "aten.max_pool2d_with_indices.default": max_pool,
    "aten.max_pool3d_with_indices.default": max_pool,
    "aten.max_pool2d_with_indices_backward.default": max_pool_backward,
    "aten.max_pool3d_with_indices_backward.default": max_pool_backward,
    "aten.adaptive_max_pool2d.default": adaptive_max_pool,
    "aten.adaptive_max_pool3d.default": adaptive_max_pool,
    "aten.adaptive_max_pool2d_backward.default": at_places,
    "aten.adaptive_max_pool3d_backward.default": at_places,
    "aten.fractional_max_pool2d.default": fractional_max_pool,
    "aten.fractional_max_pool3d.default": fractional_max_pool,
    "aten.fractional_max_pool2d_backward.default": fractional_backward,
    "aten.fractional_max_pool3d_backward.default": fractional_backward,
}
