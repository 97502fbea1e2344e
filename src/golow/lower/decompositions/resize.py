"""Resizing of images and signals: along each axis a product with a matrix of weights, which depends
only on the sizes. Its gradient is the product with the transposed matrix."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

aten = torch.ops.aten


def matrix(
    mode: str, size: int, new: int, align_corners: bool = False, scale: float | None = None
) -> Tensor:
    """float32 [new, size]: element i of the result is the sum of row i times the old elements.

    As ATen computes places: ``(i + 0.5) * ratio - 0.5``, between corners ``i * ratio``, for the
    nearest element ``floor(i * ratio)``. scale: the factor that the user gave; it replaces the
    ratio of the sizes.
    """
    old = torch.arange(size, dtype=torch.float32).unsqueeze(0)
    places = torch.arange(new, dtype=torch.float32).unsqueeze(1)
    if align_corners:
        ratio = (size - 1) / (new - 1) if new > 1 else 0.0
    else:
        ratio = 1 / scale if scale else size / new
    if mode.startswith("smooth"):
        return smoothing_matrix(mode.removeprefix("smooth "), size, new, align_corners, scale)
    if mode == "nearest":
        taken = aten.clamp_max.default(torch.floor(places * ratio), size - 1)
        return (taken == old).to(torch.float32)
    if mode == "nearest-exact":
        taken = aten.clamp_max.default(torch.floor((places + 0.5) * ratio), size - 1)
        return (taken == old).to(torch.float32)
    source = places * ratio if align_corners else (places + 0.5) * ratio - 0.5
    if mode == "linear":
        source = aten.clamp_max.default(aten.clamp_min.default(source, 0.0), float(size - 1))
        return aten.clamp_min.default(1 - torch.abs(source - old), 0.0)
    return _cubic(source, old, size)


def smoothing_matrix(
    mode: str, size: int, new: int, align_corners: bool, scale: float | None
) -> Tensor:
    """Matrix of ``antialias=True``: the kernel is as wide as an element of the result."""
    if align_corners:
        ratio = (size - 1) / (new - 1) if new > 1 else 0.0
    else:
        ratio = 1 / scale if scale else size / new
    reach = 1 if mode == "linear" else 2
    wide = max(ratio, 1.0)
    old = torch.arange(size, dtype=torch.float32).unsqueeze(0)
    centre = (torch.arange(new, dtype=torch.float32).unsqueeze(1) + 0.5) * ratio
    first = torch.trunc(aten.clamp_min.default(centre - reach * wide + 0.5, 0.0))
    end = torch.trunc(aten.clamp_max.default(centre + reach * wide + 0.5, float(size)))
    distance = torch.abs(old + 0.5 - centre) / wide
    if mode == "linear":
        weights = aten.clamp_min.default(1 - distance, 0.0)
    else:  # Keys' kernel, here with A = -0.5
        near = ((1.5 * distance - 2.5) * distance) * distance + 1
        far = ((-0.5 * distance + 2.5) * distance - 4) * distance + 2
        weights = torch.where(distance < 1, near, torch.where(distance < 2, far, 0.0))
    weights = torch.where(torch.logical_and(old >= first, old < end), weights, 0.0)
    return weights / weights.sum(1, keepdim=True)


def _cubic(source: Tensor, old: Tensor, size: int) -> Tensor:
    """Keys' kernel with A = -0.75; elements beyond the border are those at the border."""
    low = torch.floor(source)
    part = source - low
    total: Any = 0
    for tap in (-1, 0, 1, 2):
        distance = torch.abs(part - tap)
        place = low + tap
        place = aten.clamp_max.default(aten.clamp_min.default(place, 0.0), float(size - 1))
        near = ((1.25 * distance - 2.25) * distance) * distance + 1
        far = ((-0.75 * distance + 3.75) * distance - 6) * distance + 3
        weight = torch.where(distance <= 1, near, far)
        total = total + torch.where(place == old, weight, torch.zeros_like(weight))
    return total


def along(x: Tensor, axis: int, weights: Tensor) -> Tensor:
    """x with an axis replaced by its product with the matrix [new, old]."""
    weights = weights.to(x.dtype)
    if axis == x.dim() - 1:
        return x @ weights.transpose(0, 1)
    moved = x.transpose(axis, -1)
    return (moved @ weights.transpose(0, 1)).transpose(axis, -1)


def _scaled(scales: Sequence[float | None], index: int) -> float | None:
    return scales[index] if index < len(scales) else None


def _resized(
    x: Tensor, sizes: Sequence[int], mode: str, align: bool, scales: Sequence[float | None]
) -> Tensor:
    for index, new in enumerate(sizes):
        axis = x.dim() - len(sizes) + index
        old = x.shape[axis]
        if old != new or _scaled(scales, index) not in (None, 1.0):
            x = along(x, axis, matrix(mode, old, new, align, _scaled(scales, index)))
    return x.clone()


def _gradient(
    g: Tensor, input_size: Sequence[int], mode: str, align: bool, scales: Sequence[float | None]
) -> Tensor:
    axes = len(input_size) - 2
    for index in range(axes):
        axis = 2 + index
        old, new = input_size[axis], g.shape[axis]
        if old != new or _scaled(scales, index) not in (None, 1.0):
            weights = matrix(mode, old, new, align, _scaled(scales, index))
            g = along(g, axis, weights.transpose(0, 1))
    return g.clone()


def _smooth(mode: str) -> tuple[Any, Any]:
    def forward(
        self: Tensor, output_size: Sequence[int], align_corners: bool, *scales: float | None
    ) -> Tensor:
        return _resized(self, output_size, mode, align_corners, scales)

    def backward(
        grad_output: Tensor,
        output_size: Sequence[int],
        input_size: Sequence[int],
        align_corners: bool,
        *scales: float | None,
    ) -> Tensor:
        return _gradient(grad_output, input_size, mode, align_corners, scales)

    return forward, backward


def _nearest(mode: str) -> tuple[Any, Any]:
    def forward(self: Tensor, output_size: Sequence[int], *scales: float | None) -> Tensor:
        return _resized(self, output_size, mode, False, scales)

    def backward(
        grad_output: Tensor,
        output_size: Sequence[int],
        input_size: Sequence[int],
        *scales: float | None,
    ) -> Tensor:
        return _gradient(grad_output, input_size, mode, False, scales)

    return forward, backward


def _by_size_or_factor(mode: str, smooth: bool) -> Any:
    """The overload that takes a size or factors."""

    def forward(input: Tensor, output_size: Any, *rest: Any) -> Tensor:
        align = bool(rest[0]) if smooth else False
        factors = rest[-1] or ()
        spatial = input.shape[2:]
        sizes = output_size or [int(n * f) for n, f in zip(spatial, factors, strict=True)]
        return _resized(input, sizes, mode, align, factors)

    return forward


DEFINITIONS: dict[str, Any] = {}
for _name, _mode in (
    ("upsample_linear1d", "linear"),
    ("upsample_bilinear2d", "linear"),
    ("upsample_trilinear3d", "linear"),
    ("upsample_bicubic2d", "cubic"),
    ("_upsample_bilinear2d_aa", "smooth linear"),
    ("_upsample_bicubic2d_aa", "smooth cubic"),
):
    DEFINITIONS[f"aten.{_name}.default"], DEFINITIONS[f"aten.{_name}_backward.default"] = _smooth(
        _mode
    )
    DEFINITIONS[f"aten.{_name}.vec"] = _by_size_or_factor(_mode, smooth=True)
for _name in ("upsample_nearest1d", "upsample_nearest2d", "upsample_nearest3d"):
    for _prefix, _mode in (("", "nearest"), ("_", "nearest-exact")):
        _full = f"aten.{_prefix}{_name}".replace("nearest", _mode.replace("-", "_"))
        DEFINITIONS[f"{_full}.default"], DEFINITIONS[f"{_full}_backward.default"] = _nearest(_mode)
        DEFINITIONS[f"{_full}.vec"] = _by_size_or_factor(_mode, smooth=False)
