"""Volumes as images: their planes, the first of all volumes, then the second of all. So what one
plane of a kernel meets is adjacent."""

from __future__ import annotations

from torch import Tensor


def planes_of(volumes: Tensor) -> Tensor:
    """[N, C, D, H, W] as [D N, C, H, W]."""
    count, channels, depth, height, width = volumes.shape
    return volumes.permute(2, 0, 1, 3, 4).reshape(depth * count, channels, height, width)


def volume_of(planes: Tensor, count: int) -> Tensor:
    """The inverse, a view. count: of volumes."""
    return planes.reshape(-1, count, *planes.shape[1:]).permute(1, 2, 0, 3, 4)
