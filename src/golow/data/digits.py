"""Handwritten digits as package data: real images without a download.

Source: E. Alpaydin and C. Kaynak, "Optical Recognition of Handwritten Digits", UCI Machine
Learning Repository (1998), https://doi.org/10.24432/C50P49, CC BY 4.0; the test set, by 13
writers, as scikit-learn ships it. ``digits.npz`` was made from scikit-learn 1.9.1 by

    digits = sklearn.datasets.load_digits()
    images, labels = digits.images.astype(numpy.uint8), digits.target.astype(numpy.uint8)
    numpy.savez_compressed("digits.npz", images=images, labels=labels)

which changes no value: the pixels are whole numbers from 0 to 16.
"""

from __future__ import annotations

import hashlib
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from golow.data.image_file import Images
from golow.data.order import epoch_order
from golow.data.part import ArrayPart
from golow.records.errors import GolowError

FILE = Path(__file__).with_name("digits.npz")
COUNT = 1797
TRAINING = 1437
CLASSES = 10
SIDE = 8

# Mean and deviation of all 1797 * 64 pixels.
MEAN = 4.884164579855314
STANDARD_DEVIATION = 6.016787548672236

# Digest of the images' bytes, followed by the labels'.
_SHA256 = "87ff0c9e40dc7e2c0e34e7257799c2e3f3aec1a016363bb11cad869ec428a826"


def load() -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    """Images [1797, 8, 8], values 0 (paper) to 16 (ink), and labels [1797], 0 to 9.

    Raises:
        GolowError: the file is missing, or differs from the one golow was released with.
    """
    try:
        with np.load(FILE, allow_pickle=False) as arrays:
            images, labels = arrays["images"], arrays["labels"]
    except (OSError, EOFError, KeyError, ValueError, zipfile.BadZipFile, zlib.error) as error:
        raise _damaged(str(error)) from error
    digest = hashlib.sha256(images.tobytes() + labels.tobytes()).hexdigest()
    if digest != _SHA256:
        raise _damaged(f"the sha256 of its arrays is {digest[:12]}, not {_SHA256[:12]}")
    return images, labels


def parts() -> dict[str, ArrayPart]:
    """Training set [1437] and test set [360]: the first digits of a permutation, and the others.
    Values are scaled to 0..255, so that resizing has values in between."""
    order = epoch_order(COUNT, seed=0, epoch=0)
    rows = {"train": np.sort(order[:TRAINING]), "test": np.sort(order[TRAINING:])}
    return {part: _part(rows[part]) for part in rows}


def _part(rows: NDArray[np.int64]) -> ArrayPart:
    def arrays(batch: int) -> Iterator[Images]:
        images, _ = load()
        stretched = ((images[rows].astype(np.int64) * 255 + 8) // 16).astype(np.uint8)
        for start in range(0, len(rows), batch):
            yield stretched[start : start + batch, None]

    return ArrayPart(
        files=(FILE,),
        source="embedded, 0..16 scaled to 0..255, split by a permutation of seed 0",
        shape=(1, SIDE, SIDE),
        labels=lambda: load()[1][rows].astype(np.int64),
        arrays=arrays,
    )


def _damaged(reason: str) -> GolowError:
    return GolowError(
        f"the digits in {FILE} are damaged: {reason}",
        hint="pip install --force-reinstall --no-deps golow",
    )
