"""Orders of axes: PyTorch's, and those that users of other frameworks choose."""

from __future__ import annotations

CHANNELS_LAST = (0, 2, 3, 1)  # an image [N, C, H, W] as [N, H, W, C]
CHANNELS_SECOND = (0, 3, 1, 2)  # and back
FILTER = (2, 3, 1, 0)  # a convolution's weight [K, C, R, S] as [R, S, C, K]


def image_axis(axis: int) -> int:
    """Where an image with channels last has that axis of [N, C, H, W]."""
    return CHANNELS_LAST.index(axis)
