"""STL-10, its publisher's binary files: 96 x 96 pixels in three planes, column by column.

``X`` files contain only the pixels, ``y`` files one byte per label, 1 to 10.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from golow.data.image_file import Images, Labels
from golow.data.order import epoch_order
from golow.data.part import AGAIN, ArrayPart, record_count, records, require_labels
from golow.records.errors import GolowError
from golow.storage.files import is_file

SHAPE = (3, 96, 96)
CLASSES = ("airplane bird car cat deer dog horse monkey ship truck").split()
FILES = {"train": ("train_X.bin", "train_y.bin"), "test": ("test_X.bin", "test_y.bin")}
UNLABELED = "unlabeled_X.bin"

_RECORD = 3 * 96 * 96
_BATCH = 4096

Choice = NDArray[np.bool_]  # the indices of the part's samples in the files


def parts(folder: Path) -> dict[str, ArrayPart]:
    """The parts train, test and unlabeled of the binary files in a folder.

    If only one labelled part's files exist, its samples are split into two halves.
    """
    files = {part: (folder / pixels, folder / labels) for part, (pixels, labels) in FILES.items()}
    there = [part for part in files if any(map(is_file, files[part]))]
    if len(there) == 1:
        found = {part: _half(files[there[0]], there[0], part) for part in files}
    else:
        found = {part: _part(*files[part]) for part in files}
    return found | {"unlabeled": _unlabeled(folder / UNLABELED)}


def _part(pixels: Path, labels: Path) -> ArrayPart:
    return ArrayPart(
        files=(pixels, labels),
        source="binary version",
        shape=SHAPE,
        labels=partial(_labels, labels, pixels),
        arrays=partial(_images, pixels, None),
    )


def _half(files: tuple[Path, Path], of: str, part: str) -> ArrayPart:
    """The training half is the first half of a permutation of seed 0."""
    pixels, labels = files

    def chosen() -> Choice:
        count = record_count(pixels, _RECORD)
        if count < 2:
            raise GolowError(f"{pixels} has one image, which cannot be split", AGAIN)
        first = np.zeros(count, dtype=np.bool_)
        first[epoch_order(count, seed=0, epoch=0)[: count // 2]] = True
        return first if part == "train" else ~first

    return ArrayPart(
        files=files,
        source=f"binary version, only {of} exists: one half of it, by a permutation of seed 0",
        shape=SHAPE,
        labels=lambda: _labels(labels, pixels)[chosen()],
        arrays=lambda batch: _images(pixels, chosen(), batch),
    )


def _unlabeled(pixels: Path) -> ArrayPart:
    return ArrayPart(
        files=(pixels,),
        source="binary version",
        shape=SHAPE,
        labels=lambda: np.full(record_count(pixels, _RECORD), -1, dtype=np.int64),
        arrays=partial(_images, pixels, None),
    )


def _labels(file: Path, pixels: Path) -> Labels:
    expected, found = record_count(pixels, _RECORD), record_count(file, 1)
    if found != expected:
        raise GolowError(f"{file} has {found:,} labels for {expected:,} images", AGAIN)
    values = np.concatenate([batch[:, 0] for batch in records(file, 1, _BATCH)])
    return require_labels(values.astype(np.int64), len(CLASSES), file, first=1)


def _images(file: Path, choice: Choice | None, batch: int) -> Iterator[Images]:
    row = 0
    for chunk in records(file, _RECORD, batch):
        images = chunk.reshape(-1, *SHAPE).swapaxes(2, 3)
        yield images if choice is None else images[choice[row : row + len(images)]]
        row += len(images)
