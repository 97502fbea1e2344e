"""Decoding and resizing with Pillow, on all cores. Nothing else in golow imports Pillow.

All data sets are resized in the same way: Pillow's bilinear filter, which averages over the pixels
that become one. The image is stretched to the new size, never cropped.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from golow.data.image_file import Images
from golow.records.errors import GolowError

if TYPE_CHECKING:
    from PIL.Image import Image

Size = tuple[int, int]  # height, width

SUFFIXES = (".jpg", ".jpeg", ".png", ".bmp", ".webp")
_MOST_THREADS = 8  # more would wait for each other: part of the work holds the interpreter lock
_FORMATS = ("JPEG", "PNG", "BMP", "WEBP")
_MOST_PIXELS = 1 << 26


def resized(batches: Iterable[Images], size: Size) -> Iterator[Images]:
    """Batches uint8 [n, C, H, W], C 1 or 3, resized to [n, C, *size]."""
    threads = _threads()
    with ThreadPoolExecutor(threads) as pool:
        for batch in batches:
            shares = np.array_split(batch, min(threads, len(batch)))
            yield np.concatenate(list(pool.map(partial(_resize, size=size), shares)))


def decoded(files: Sequence[Path], size: Size, batch: int) -> Iterator[Images]:
    """The images as RGB, resized, in batches uint8 [n, 3, *size].

    Raises:
        GolowError: a file does not decode, has more than 8 bits per channel, or too many pixels.
    """
    with ThreadPoolExecutor(_threads()) as pool:
        for start in range(0, len(files), batch):
            chosen = files[start : start + batch]
            yield np.stack(list(pool.map(partial(_decode, size=size), chosen)))


def _threads() -> int:
    return min(_MOST_THREADS, len(os.sched_getaffinity(0)))


def _resize(images: Images, size: Size) -> Images:
    from PIL import Image

    planes = [
        _fit(Image.fromarray(image[0] if len(image) == 1 else image.transpose(1, 2, 0)), size)
        for image in images
    ]
    return np.stack(planes)


def _decode(file: Path, size: Size) -> Images:
    from PIL import Image

    try:
        with Image.open(file, formats=_FORMATS) as image:
            _require_ordinary(image, file)
            return _fit(image.convert("RGB"), size)
    except GolowError:
        raise
    except Exception as error:  # a damaged file raises a dozen types from inside Pillow
        raise GolowError(
            f"{file} does not decode as an image: {error or type(error).__name__}",
            "replace or remove it.",
        ) from error


def _require_ordinary(image: Image, file: Path) -> None:
    if image.width * image.height > _MOST_PIXELS:
        raise GolowError(
            f"{file} declares {image.width:,} x {image.height:,} pixels, more than golow "
            f"decodes ({_MOST_PIXELS:,})",
            "make it smaller or remove it.",
        )
    if image.mode.startswith(("I", "F")):  # Pillow would clip these at 255
        raise GolowError(
            f"{file} has more than 8 bits per channel (Pillow's mode {image.mode})",
            "convert it to 8 bits.",
        )


def _fit(image: Image, size: Size) -> Images:
    """The image stretched to size, uint8 [C, *size]."""
    from PIL.Image import Resampling

    height, width = size
    if image.size != (width, height):
        image = image.resize((width, height), Resampling.BILINEAR)
    pixels = np.asarray(image)
    return pixels[None] if pixels.ndim == 2 else pixels.transpose(2, 0, 1)
