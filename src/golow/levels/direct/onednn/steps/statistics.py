"""Batch norm's sums in groups of pixels, as exact as PyTorch's.

oneDNN adds the pixels of a channel in one float32 accumulator for each thread. Over 16,000 pixels
its variance is off by 1e-6. That is sixteen times PyTorch's error, since PyTorch adds in float64,
and it affects the gradients of all earlier layers. The remedy needs no extra pass over memory: the
same tensor, viewed as G times as many channels with 1/G of the pixels, gives G partial statistics
for each channel. They are combined in float64 (Chan, Golub and LeVeque, "Updating Formulae and a
Pairwise Algorithm for Computing Sample Variances", 1979).
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from golow.levels.direct.onednn.bindings.constants import CHANNELS_LAST
from golow.levels.direct.onednn.bindings.library import Descriptor, channel_block
from golow.levels.direct.onednn.steps.built_plan import Tensor

# Pixels for one accumulator: up to this number, its error is below float32's own rounding.
PIXELS = 128


class Groups(NamedTuple):
    """A view of a tensor [N, C, H, W] with ``number`` times as many channels.

    layout: the view's. order: the shape of the view's channels in memory, with the axis of the
    groups: (G, C) for channels last, (C / 16, G, 16) for blocks. wide and narrow: layouts of the
    view and of one number for each of its channels, for oneDNN's arithmetic. If the same memory is
    described differently, oneDNN uses its reference code, which is fifty times slower.
    """

    number: int
    pixels: int
    layout: Descriptor
    order: tuple[int, ...]
    axis: int
    wide: Descriptor
    narrow: Descriptor

    def total(self, partial: np.ndarray) -> np.ndarray:
        """Return the sums over the groups in float64: [C]."""
        total: np.ndarray = partial.reshape(self.order).sum(axis=self.axis, dtype=np.float64)
        return total.ravel()

    def apart(self, partial: np.ndarray) -> np.ndarray:
        """Return the view's channels with the groups as a separate axis, in float64."""
        return partial.reshape(self.order).astype(np.float64)

    def beside(self, channels: np.ndarray) -> np.ndarray:
        """Return [C] in a shape that broadcasts against `apart`."""
        shape = list(self.order)
        shape[self.axis] = 1
        return channels.reshape(shape)

    def spread(self, channels: np.ndarray, view: np.ndarray) -> None:
        """Write the values of [C] to every group."""
        view.reshape(self.order)[...] = self.beside(channels)


def groups_of(tensor: Tensor) -> Groups | None:
    """Return a view of the tensor; None if one accumulator is enough, or for other layouts."""
    if len(tensor.shape) != 4:
        return None
    images, channels, *image = tensor.shape
    area = math.prod(image)
    block = channel_block()
    blocked = channels % block.size == 0 and tensor.layout == Descriptor.tagged(
        tensor.shape, block.tag
    )
    last = tensor.layout == Descriptor.tagged(tensor.shape, CHANNELS_LAST)
    if images * area <= PIXELS or not (blocked or last):
        return None
    if blocked:
        count = _divisor(area, images * area / PIXELS)
        shape = (images, channels * count, 1, area // count)
        layout = Descriptor.tagged(shape, block.tag)
        order: tuple[int, ...] = (channels // block.size, count, block.size)
        wide = layout
        narrow = Descriptor.tagged((1, channels * count, 1, 1), block.tag)
    else:
        count = _divisor(images * area, images * area / PIXELS)
        layout = Descriptor.tagged((images * area // count, channels * count, 1, 1), CHANNELS_LAST)
        order = (count, channels)
        wide = Descriptor.plain((images * area // count, channels * count))
        narrow = Descriptor.plain((1, channels * count))
    if count == 1:
        return None
    return Groups(count, images * area, layout, order, len(order) - 2, wide, narrow)


def _divisor(number: int, least: float) -> int:
    """The smallest divisor that is at least ``least``; otherwise the number itself."""
    return next(d for d in range(1, number + 1) if number % d == 0 and (d >= least or d == number))


def combined(groups: Groups, means: np.ndarray, variances: np.ndarray) -> tuple[np.ndarray, ...]:
    """Return mean and variance of each channel, in float64, from those of its groups."""
    apart = groups.apart(means)
    mean = apart.mean(axis=groups.axis)
    within = groups.apart(variances).mean(axis=groups.axis)
    return mean.ravel(), (within + apart.var(axis=groups.axis)).ravel()


def corrections(
    groups: Groups,
    sums: tuple[np.ndarray, np.ndarray],
    mean: np.ndarray,
    variance: np.ndarray,
    scale: np.ndarray | None,
    epsilon: float,
) -> tuple[np.ndarray, ...]:
    """Return what corrects gradients that use each group's sums instead of the channel's.

    The gradient of x is s r (g - S1 / M - n S2 / M) with scale s, inverse deviation r, normalised x
    n = (x - mean) r, S1 the sum of g and S2 the sum of g n over M pixels. With a group's sums and
    pixels, it is off by A + B x for every x of that group. sums: S1 and S2 of the groups. Returns A
    and B for the view's channels, S1 and S2 for the tensor's.
    """
    share = groups.pixels // groups.number
    ones, normed = (groups.apart(partial) for partial in sums)
    total_ones, total_normed = (groups.total(partial) for partial in sums)
    inverse = 1 / np.sqrt(variance.astype(np.float64) + epsilon)
    factor = inverse if scale is None else inverse * scale
    off_ones = ones / share - groups.beside(total_ones / groups.pixels)
    off_normed = normed / share - groups.beside(total_normed / groups.pixels)
    slope = groups.beside(factor * inverse) * off_normed
    level = groups.beside(factor) * off_ones - slope * groups.beside(mean)
    return level.ravel(), slope.ravel(), total_ones, total_normed
