"""The result of a reader of a publisher's format: a part of a data set, read lazily.

Labels come first and all at once, since they are small; images come in batches, since they may not
fit in memory.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from io import BufferedReader
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from golow.data.image_file import Images, Labels
from golow.data.pictures import Size, decoded, resized
from golow.records.errors import GolowError
from golow.storage.files import require_file

AGAIN = "fetch or copy it again."
_BATCH_BYTES = 1 << 22
_LARGEST_BATCH = 1024


@dataclass(frozen=True)
class ArrayPart:
    """A part whose publisher's files contain raw pixels.

    shape is that of one image, (C, H, W). labels() returns all, arrays(n) the images in batches of
    n, uint8 [n, C, H, W], with a smaller last one. Both raise `GolowError` for a damaged file.
    """

    files: tuple[Path, ...]
    source: str
    shape: tuple[int, int, int]
    labels: Callable[[], Labels]
    arrays: Callable[[int], Iterator[Images]]

    def images(self, size: Size) -> Iterator[Images]:
        """All images in the order of the labels, in batches uint8 [n, C, *size]."""
        channels, *native = self.shape
        largest = max(math.prod(self.shape), channels * math.prod(size))
        batches = self.arrays(batch_size(largest))
        return batches if tuple(native) == size else resized(batches, size)


@dataclass(frozen=True)
class PicturePart:
    """A part of compressed images, one file each, which are read as RGB. files lists all files of
    the part, images included."""

    files: tuple[Path, ...]
    source: str
    pictures: tuple[Path, ...]
    labels: Callable[[], Labels]

    def images(self, size: Size) -> Iterator[Images]:
        """All images in the order of the labels, in batches uint8 [n, 3, *size]."""
        return decoded(self.pictures, size, batch_size(3 * math.prod(size)))


Part = ArrayPart | PicturePart


def batch_size(sample_bytes: int) -> int:
    """How many samples of that many bytes to hold in memory at once."""
    return max(1, min(_LARGEST_BATCH, _BATCH_BYTES // sample_bytes))


# ---------------------------------------------------------------- what several readers share


@contextmanager
def reading(file: Path) -> Iterator[BufferedReader]:
    """The file, open; the system's errors become `GolowError`."""
    try:
        if file.exists():
            require_file(file, AGAIN)
        with file.open("rb") as stream:
            yield stream
    except FileNotFoundError as error:
        raise GolowError(f"{file} is missing", AGAIN) from error
    except OSError as error:
        raise GolowError(f"{file} cannot be read: {error.strerror or error}", AGAIN) from error


def record_count(file: Path, length: int) -> int:
    """How many records of that many bytes the file has: a whole number, and not 0."""
    with reading(file):
        size = file.stat().st_size
    if size % length or not size:
        raise GolowError(
            f"{file} has {size:,} bytes, not whole records of {length:,}: it is truncated or its "
            f"name is wrong",
            AGAIN,
        )
    return size // length


def records(file: Path, length: int, batch: int) -> Iterator[NDArray[np.uint8]]:
    """The records of a file in batches [n, length]."""
    left = record_count(file, length)
    with reading(file) as stream:
        while left:
            data = stream.read(min(batch, left) * length)
            if len(data) != min(batch, left) * length:
                raise GolowError(f"{file} became shorter during reading", AGAIN)
            yield np.frombuffer(data, dtype=np.uint8).reshape(-1, length)
            left -= len(data) // length


def require_labels(labels: Labels, classes: int, file: Path, first: int = 0) -> Labels:
    """The labels, counted from 0; all must be first to first + classes - 1."""
    if len(labels) and not first <= labels.min() <= labels.max() < first + classes:
        wrong = int(np.flatnonzero((labels < first) | (labels >= first + classes))[0])
        raise GolowError(
            f"{file}: the label of sample {wrong} is {labels[wrong]}, expected {first} to "
            f"{first + classes - 1}",
            AGAIN,
        )
    return labels - first
