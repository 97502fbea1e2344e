"""CIFAR-10, the publisher's binary version: records of a one-byte label and 3 x 32 x 32 pixels.

The label is 0 to 9; the pixels are the red, the green and the blue plane, row by row.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path

import numpy as np

from golow.data.image_file import Images, Labels
from golow.data.part import ArrayPart, records, require_labels

SHAPE = (3, 32, 32)
CLASSES = ("airplane automobile bird cat deer dog frog horse ship truck").split()
FILES = {
    "train": tuple(f"data_batch_{number}.bin" for number in range(1, 6)),
    "test": ("test_batch.bin",),
}

_RECORD = 1 + 3 * 32 * 32
_BATCH = 4096


def parts(folder: Path) -> dict[str, ArrayPart]:
    """Training and test set of the binary files in a folder."""
    return {part: _part(tuple(folder / name for name in FILES[part])) for part in FILES}


def _part(files: tuple[Path, ...]) -> ArrayPart:
    return ArrayPart(
        files=files,
        source="binary version",
        shape=SHAPE,
        labels=partial(_labels, files),
        arrays=partial(_images, files),
    )


def _labels(files: tuple[Path, ...]) -> Labels:
    found = []
    for file in files:
        columns = [batch[:, 0].astype(np.int64) for batch in records(file, _RECORD, _BATCH)]
        found.append(require_labels(np.concatenate(columns), len(CLASSES), file))
    return np.concatenate(found)


def _images(files: tuple[Path, ...], batch: int) -> Iterator[Images]:
    for file in files:
        for chunk in records(file, _RECORD, batch):
            yield chunk[:, 1:].reshape(-1, *SHAPE)
