"""Brings the batches of a feed into PyTorch: to the device, where they are augmented and
normalised."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from golow.worker.feed import Fed, Feed, is_pixels, padded


def batches(feed: Feed, device: torch.device, least: int = 0) -> Iterator[tuple[Tensor, Tensor]]:
    """For each batch the input, float32 [n, C, H, W], and the labels, int64 [n], on the device; of
    a text both are int64 [n, sequence].

    On a GPU everything is enqueued and nothing waits. least: smaller batches are filled up to this
    many rows with copies of their last row.
    """
    scale, shift = (_send(array, device)[:, None, None] for array in (feed.scale, feed.shift))
    for fed in feed:
        pixels = _send(padded(fed.pixels, max(least, len(fed.pixels))), device)
        inputs = _augment(pixels, fed)
        if is_pixels(fed.pixels):
            inputs = inputs.to(torch.float32).mul_(scale).add_(shift)
        yield inputs, _send(fed.labels, device)


def _send(array: np.ndarray, device: torch.device) -> Tensor:
    tensor = torch.from_numpy(array)
    if device.type == "cpu":
        return tensor
    return tensor.pin_memory().to(device, non_blocking=True)


def _augment(pixels: Tensor, fed: Fed) -> Tensor:
    """`golow.worker.feed.augmented` as one gather of pixels from the padded image."""
    if fed.shifts is None and fed.flips is None:
        return pixels
    device = pixels.device
    count, channels, height, width = pixels.shape
    rows = torch.arange(height, device=device).expand(count, height)
    columns = torch.arange(width, device=device).expand(count, width)
    if fed.flips is not None:
        flipped = _send(fed.flips, device)[:, None] != 0
        columns = torch.where(flipped, width - 1 - columns, columns)
    if fed.shifts is not None:
        reach = int(np.abs(fed.shifts.astype(np.int16)).max())
        pixels = functional.pad(pixels, (reach, reach, reach, reach))
        places = _send(fed.shifts, device).to(torch.int64) + reach
        rows, columns = rows + places[:, :1], columns + places[:, 1:]
    return pixels[
        torch.arange(count, device=device)[:, None, None, None],
        torch.arange(channels, device=device)[:, None, None],
        rows[:, None, :, None],
        columns[:, None, None, :],
    ]
