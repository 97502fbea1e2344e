"""Images and volumes sampled at places of a grid, which a network computes.

The gradient is the derivative of the definition, which PyTorch traces as it traces the definition.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import product
from typing import Any

import torch
from torch import Tensor

aten = torch.ops.aten

LINEAR, NEAREST, CUBIC = range(3)  # ATen's numbers
ZEROS, BORDER, REFLECTION = range(3)


def sample(
    input: Tensor,
    grid: Tensor,
    interpolation_mode: int,
    padding_mode: int,
    align_corners: bool,
) -> Any:
    """``grid_sampler_2d`` and ``grid_sampler_3d``: [N, C, ...] and [N, ..., axes] to [N, C, ...].

    The grid has the axes in the order of width, height and depth, each from -1 to 1.
    """
    sizes = input.shape[2:]
    places = []
    for axis, size in enumerate(sizes):
        place = aten.select.int(grid, grid.dim() - 1, len(sizes) - 1 - axis)
        places.append(_to_elements(place, size, align_corners))
    if interpolation_mode == CUBIC:
        return _cubic(input, places, padding_mode, align_corners)
    inside = [
        _within(place, size, padding_mode, align_corners)
        for place, size in zip(places, sizes, strict=True)
    ]
    if interpolation_mode == NEAREST:
        return _taken(input, [torch.round(place) for place in inside])
    low = [torch.floor(place) for place in inside]
    total: Any = 0
    for corner in product((0, 1), repeat=len(sizes)):
        weight: Any = 1
        for side, place, first in zip(corner, inside, low, strict=True):
            part = place - first
            weight = weight * (part if side else 1 - part)
        at = [first + side for side, first in zip(corner, low, strict=True)]
        total = total + _taken(input, at) * weight.unsqueeze(1)
    return total


def _to_elements(place: Tensor, size: int, align_corners: bool) -> Tensor:
    """From [-1, 1] to places of elements."""
    if align_corners:
        return (place + 1) * ((size - 1) / 2)
    return ((place + 1) * size - 1) * 0.5


def _within(place: Tensor, size: int, padding_mode: int, align_corners: bool) -> Tensor:
    """Places inside the image, for a mode that has no others. At the border the derivative is zero,
    as in PyTorch."""
    if padding_mode == ZEROS:
        return place
    if padding_mode == REFLECTION:
        place = _reflected(place, size, align_corners)
    last = float(size - 1)
    return torch.where(place <= 0, 0.0, torch.where(place >= last, last, place))


def _reflected(place: Tensor, size: int, align_corners: bool) -> Tensor:
    """Places turned back at the first and last element, or at their outer edges."""
    low, span = (0.0, float(size - 1)) if align_corners else (-0.5, float(size))
    if span == 0:
        return torch.zeros_like(place)
    distance = torch.abs(place - low)
    turns = torch.floor(distance / span).detach()
    rest = distance - turns * span
    even = aten.remainder.Scalar(turns, 2.0) == 0
    return torch.where(even, rest + low, span - rest + low)


def _taken(input: Tensor, places: Sequence[Tensor]) -> Tensor:
    """The elements at whole places [N, ...], zero beyond the image: [N, C, ...]."""
    n, c = input.shape[:2]
    shape = places[0].shape[1:]
    exists = torch.ones_like(places[0], dtype=torch.bool)
    flat = torch.zeros_like(places[0], dtype=torch.int64)
    for place, size in zip(places, input.shape[2:], strict=True):
        here = torch.logical_and(place >= 0, place <= size - 1)
        exists = torch.logical_and(exists, here)
        flat = flat * size + torch.where(here, place, 0.0).to(torch.int64)
    index = flat.reshape(n, 1, -1).expand(n, c, shape.numel())
    found = aten.gather.default(input.reshape(n, c, -1), 2, index).reshape(n, c, *shape)
    return torch.where(exists.unsqueeze(1), found, 0.0)


def _cubic(
    input: Tensor, places: Sequence[Tensor], padding_mode: int, align_corners: bool
) -> Tensor:
    """Sixteen neighbours with Keys' kernel, A = -0.75; each neighbour is padded for itself."""
    sizes = input.shape[2:]
    low = [torch.floor(place) for place in places]
    parts = [place - first for place, first in zip(places, low, strict=True)]
    total: Any = 0
    for taps in product((-1, 0, 1, 2), repeat=2):
        at: list[Tensor] = []
        weight: Any = 1
        for tap, first, part, size in zip(taps, low, parts, sizes, strict=True):
            at.append(_within(first + tap, size, padding_mode, align_corners))
            weight = weight * _keys(torch.abs(part - tap))
        total = total + _taken(input, at) * weight.unsqueeze(1)
    return total


def _keys(distance: Tensor) -> Tensor:
    near = ((1.25 * distance - 2.25) * distance) * distance + 1
    far = ((-0.75 * distance + 3.75) * distance - 6) * distance + 3
    return torch.where(distance <= 1, near, far)


def backward(
    grad_output: Tensor,
    input: Tensor,
    grid: Tensor,
    interpolation_mode: int,
    padding_mode: int,
    align_corners: bool,
    output_mask: Sequence[bool],
) -> Any:
    """The gradients of the image and of the grid."""

    def whole(image: Tensor, places: Tensor) -> Tensor:
        found: Tensor = sample(image, places, interpolation_mode, padding_mode, align_corners)
        return found

    pulled: Callable[..., Any] = torch.func.vjp(whole, input, grid)[1]
    of_input, of_grid = pulled(grad_output)
    return of_input if output_mask[0] else None, of_grid if output_mask[1] else None


DEFINITIONS = {
    "aten.grid_sampler_2d.default": sample,
    "aten.grid_sampler_3d.default": sample,
    "aten.grid_sampler_2d_backward.default": backward,
    "aten.grid_sampler_3d_backward.default": backward,
}
