"""Batches of digits in the shape that a model wants: real images for any resolution.

The levels are timed and checked on several such batches in turn, never on zeros or on one tensor
again and again, which caches and clock gating treat better than they treat a user's data.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from golow.data import digits

Batch = tuple[NDArray[np.float32], NDArray[np.int64]]

_TRIES = 20  # draws for each batch that is asked for, before golow says that there are too few


def batches(count: int, batch: int, shape: tuple[int, ...], seed: int) -> list[Batch]:
    """Batches of images float32 [batch, *shape] with their labels int64 [batch], 0 to 9.

    shape is that of one sample:
        (channels, height, width)         the digit resized, the same in every channel;
        (height, width)                   the digit resized;
        (features,)                       the digit resized to the least square that has as many
                                          pixels, read row by row and cut off;
        (channels, depth, height, width)  the digit resized, the same in every channel and slice.

    Digits are drawn without repetition while they last, in an order that the seed gives, and then
    in another. Pixels have mean 0 and variance 1 over the data set, before they are resized. No
    batch equals another, and none is constant.

    Raises:
        ValueError: a size is below 1, the shape has no or more than four dimensions, or there are
            not so many different batches.
    """
    if min(count, batch, *shape, 1) < 1 or not 1 <= len(shape) <= 4:
        raise ValueError(
            f"cannot make {count} batches of {batch} samples of shape {shape}: sizes are at least "
            "1, dimensions one to four"
        )
    images, labels = digits.load()
    made: dict[bytes, Batch] = {}
    for indices, _ in zip(_draws(batch, seed), range(_TRIES * count), strict=False):
        samples = _samples(images[indices], shape)
        if samples.size == 1 or samples.min() < samples.max():
            digest = hashlib.sha256(samples.tobytes()).digest()
            made.setdefault(digest, (samples, labels[indices].astype(np.int64)))
        if len(made) == count:
            return list(made.values())
    raise ValueError(
        f"the digits give {len(made)} different batches of {batch} samples of shape {shape}, "
        f"not {count}"
    )


def _draws(batch: int, seed: int) -> Iterator[NDArray[np.int64]]:
    """Indices of digits [batch], without end: one permutation of all after another."""
    random = np.random.default_rng(seed)
    waiting = np.empty(0, dtype=np.int64)
    while True:
        while len(waiting) < batch:
            waiting = np.concatenate([waiting, random.permutation(digits.COUNT)])
        yield waiting[:batch]
        waiting = waiting[batch:]


def _samples(images: NDArray[np.uint8], shape: tuple[int, ...]) -> NDArray[np.float32]:
    """Pixels [batch, 8, 8] -> normalised samples [batch, *shape]."""
    pixels = (images.astype(np.float64) - digits.MEAN) / digits.STANDARD_DEVIATION
    if len(shape) == 1:
        (features,) = shape
        side = math.isqrt(features - 1) + 1
        flat = resize(pixels, side, side).reshape(len(images), -1)
        return np.ascontiguousarray(flat[:, :features], dtype=np.float32)
    *repeats, height, width = shape
    planes = resize(pixels, height, width).astype(np.float32)
    planes = planes.reshape(len(images), *(1 for _ in repeats), height, width)
    return np.broadcast_to(planes, (len(images), *shape)).copy()


def resize(images: NDArray[np.float64], height: int, width: int) -> NDArray[np.float64]:
    """Images [..., rows, columns] -> [..., height, width], bilinear, without antialiasing.

    Pixel centres lie at half-integers and the border is repeated: what
    ``torch.nn.functional.interpolate(mode="bilinear", align_corners=False)`` computes.
    """
    rows = _interpolation(images.shape[-2], height)
    columns = _interpolation(images.shape[-1], width)
    resized: NDArray[np.float64] = rows @ images @ columns.T
    return resized


def _interpolation(size: int, target: int) -> NDArray[np.float64]:
    """The matrix [target, size] that resizes one axis linearly; its rows sum to 1."""
    centres = (np.arange(target) + 0.5) * (size / target) - 0.5
    centres = np.clip(centres, 0, size - 1)
    below = centres.astype(np.int64)
    above = np.minimum(below + 1, size - 1)
    matrix = np.zeros((target, size))
    every = np.arange(target)
    np.add.at(matrix, (every, below), 1 - (centres - below))
    np.add.at(matrix, (every, above), centres - below)
    return matrix
