"""MNIST as its publisher wrote it: four IDX files, gzipped or not.

An IDX file is a big-endian header (magic 0x0801 for labels, 0x0803 for images; the count; for
images rows and columns) and then the bytes.
"""

from __future__ import annotations

import gzip
import math
import struct
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import BinaryIO

import numpy as np

from golow.data.image_file import Images, Labels
from golow.data.part import AGAIN, ArrayPart, reading, require_labels
from golow.records.errors import GolowError
from golow.storage.files import is_file

SIDE = 28
CLASSES = 10
FILES = {
    "train": ("train-images-idx3-ubyte", "train-labels-idx1-ubyte"),
    "test": ("t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte"),
}

_LABELS, _IMAGES = 0x0801, 0x0803
_PIECE = 1 << 20
_OVERHEAD = 1 << 16  # bytes that gzip may add to what it cannot compress

Stream = BinaryIO | gzip.GzipFile


def parts(folder: Path) -> dict[str, ArrayPart]:
    """Training and test set of the IDX files in a folder."""
    return {part: _part(*(_present(folder, name) for name in FILES[part])) for part in FILES}


def _present(folder: Path, name: str) -> Path:
    """The file, plain or gzipped as published."""
    return folder / name if is_file(folder / name) else folder / f"{name}.gz"


def _part(images: Path, labels: Path) -> ArrayPart:
    return ArrayPart(
        files=(images, labels),
        source="IDX files",
        shape=(1, SIDE, SIDE),
        labels=partial(_labels, labels, images),
        arrays=partial(_images, images),
    )


def _labels(file: Path, images: Path) -> Labels:
    with _open(images, _IMAGES, (SIDE, SIDE)) as (_, expected):
        pass
    with _open(file, _LABELS, ()) as (stream, count):
        if count != expected:
            raise GolowError(f"{file} has {count:,} labels for {expected:,} images", AGAIN)
        values = b"".join(_pieces(stream, count, _PIECE, file))
    return require_labels(np.frombuffer(values, np.uint8).astype(np.int64), CLASSES, file)


def _images(file: Path, batch: int) -> Iterator[Images]:
    with _open(file, _IMAGES, (SIDE, SIDE)) as (stream, count):
        for data in _pieces(stream, count * SIDE**2, batch * SIDE**2, file):
            yield np.frombuffer(data, np.uint8).reshape(-1, 1, SIDE, SIDE)


@contextmanager
def _open(file: Path, magic: int, shape: tuple[int, ...]) -> Iterator[tuple[Stream, int]]:
    """The bytes after the header, and the number of items that the header states."""
    with reading(file) as raw:
        stream = gzip.GzipFile(fileobj=raw) if file.suffix == ".gz" else raw
        try:
            header = stream.read(8 + 4 * len(shape))
            if len(header) < 8 + 4 * len(shape):
                raise _cut_off(file)
            found, count, *sides = struct.unpack(f">{2 + len(shape)}I", header)
            if found != magic or tuple(sides) != shape:
                expected = "x".join(map(str, shape)) or "no"
                raise GolowError(
                    f"{file} begins with magic {found:#x} and sides {sides}; expected {magic:#x} "
                    f"and {expected} sides",
                    AGAIN,
                )
            if not count:
                raise GolowError(f"{file} has no samples", AGAIN)
            # gzip skips zeros after its end, one at a time: for hours in a file of some GiB.
            if file.stat().st_size > len(header) + count * math.prod(shape) + _OVERHEAD:
                raise _too_long(file)
            yield stream, count
        except (EOFError, zlib.error, gzip.BadGzipFile) as error:
            raise GolowError(f"{file} does not unpack: {error}", AGAIN) from error


def _pieces(stream: Stream, length: int, piece: int, file: Path) -> Iterator[bytes]:
    """The next length bytes in pieces, when the file has these and no more."""
    while length:
        data = stream.read(min(piece, length))
        if len(data) < min(piece, length):
            raise _cut_off(file)
        length -= len(data)
        if not length and stream.read(1):  # which also makes gzip look at its checksum
            raise _too_long(file)
        yield data


def _too_long(file: Path) -> GolowError:
    return GolowError(f"{file} is longer than its header states", AGAIN)


def _cut_off(file: Path) -> GolowError:
    return GolowError(f"{file} is truncated: it is shorter than its header states", AGAIN)
