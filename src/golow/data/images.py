"""Batches of digits in the shape that a model needs: real images for any resolution.

The levels are timed and checked on several such batches in turn, never on zeros or on one tensor
repeatedly: caches and clock gating make those faster than a user's data.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import cache

import numpy as np
from numpy.typing import NDArray

from golow.data import digits

Batch = tuple[NDArray[np.float32], NDArray[np.int64]]

_TRIES = 20  # draws per requested batch before golow reports that there are too few


def batches(count: int, batch: int, shape: tuple[int, ...], seed: int) -> Iterator[Batch]:
    """Batches of images float32 [batch, *shape] with their labels int64 [batch], 0 to 9, made
    lazily.

    shape is that of one sample:
        (channels, height, width)         the digit resized, the same in every channel;
        (height, width)                   the digit resized;
        (features,)                       the digit resized to the smallest square with at least
                                          as many pixels, read row by row and truncated;
        (channels, depth, height, width)  the digit resized, the same in every channel and slice;
        (features, 1, 1), also of more    one pixel per channel, as in a generator's noise: as
        axes of 1                         (features,).

    Digits are drawn without repetition while they last, in an order given by the seed, and then in
    another order. Pixels have mean 0 and variance 1 over the data set before resizing. No two
    batches are equal, and none is constant.

    Raises:
        ValueError: a size is below 1, or the shape has no or more than four dimensions; later,
            there are fewer different batches.
    """
    if min(count, batch, *shape, 1) < 1 or not 1 <= len(shape) <= 4:
        raise ValueError(
            f"cannot make {count} batches of {batch} samples of shape {shape}: sizes are at least "
            "1, dimensions one to four"
        )
    return _different(count, batch, shape, seed)


def _different(count: int, batch: int, shape: tuple[int, ...], seed: int) -> Iterator[Batch]:
    images, labels = digits.load()
    made: list[NDArray[np.float32]] = []
    for indices, _ in zip(_draws(batch, seed), range(_TRIES * count), strict=False):
        samples = _samples(images[indices], shape)
        if _varies(samples) and not any(_are_equal(samples, other) for other in made):
            made.append(samples)
            yield samples, labels[indices].astype(np.int64)
        if len(made) == count:
            return
    raise ValueError(
        f"the digits give {len(made)} different batches of {batch} samples of shape {shape}, "
        f"not {count}"
    )


def _draws(batch: int, seed: int) -> Iterator[NDArray[np.int64]]:
    """Indices of digits [batch], endlessly: one permutation of all after another."""
    random = np.random.default_rng(seed)
    waiting = np.empty(0, dtype=np.int64)
    while True:
        while len(waiting) < batch:
            waiting = np.concatenate([waiting, random.permutation(digits.COUNT)])
        yield waiting[:batch]
        waiting = waiting[batch:]


def _varies(samples: NDArray[np.float32]) -> bool:
    """True if the values differ; nearly always the first sample shows it."""
    return samples.size == 1 or any(bool(part.min() < part.max()) for part in (samples[0], samples))


def _are_equal(samples: NDArray[np.float32], others: NDArray[np.float32]) -> bool:
    """Nearly always the first sample shows it."""
    return np.array_equal(samples[0], others[0]) and np.array_equal(samples, others)


def _samples(images: NDArray[np.uint8], shape: tuple[int, ...]) -> NDArray[np.float32]:
    """Pixels [batch, 8, 8] -> normalised samples [batch, *shape]."""
    pixels = (images.astype(np.float64) - digits.MEAN) / digits.STANDARD_DEVIATION
    samples = np.empty((len(images), *shape), np.float32)
    for sample, picture in zip(samples, pixels, strict=True):
        # One at a time: the resized image is still in the cache when it is copied.
        sample[:] = _sample(picture, shape)
    return samples


def _sample(picture: NDArray[np.float64], shape: tuple[int, ...]) -> NDArray[np.float64]:
    """The image for a sample of that shape; it is repeated along the first dimensions."""
    if len(shape) > 1 and math.prod(shape[1:]) == 1:
        return _sample(picture, shape[:1]).reshape(shape)
    if len(shape) == 1:
        (features,) = shape
        side = math.isqrt(features - 1) + 1
        return resize(picture, side, side).reshape(-1)[:features]
    return resize(picture, *shape[-2:])


def resize(images: NDArray[np.float64], height: int, width: int) -> NDArray[np.float64]:
    """Images [..., rows, columns] -> [..., height, width], bilinear, without antialiasing.

    Pixel centres are at half-integers and the border is repeated, as in
    ``torch.nn.functional.interpolate(mode="bilinear", align_corners=False)``.
    """
    rows = _interpolation(images.shape[-2], height)
    columns = _interpolation(images.shape[-1], width)
    resized: NDArray[np.float64] = rows @ images @ columns.T
    return resized


@cache
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
