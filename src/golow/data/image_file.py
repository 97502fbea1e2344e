"""The one format that every worker reads: a prepared part of a data set as a safetensors file.

It has the tensors ``labels`` int64 [N] and ``images`` uint8 [N, C, H, W], in this order, and facts
about them in ``__metadata__`` (`docs/use/datasets.md` lists them). It is written in batches, so it
may be larger than memory, and memory-mapped for reading.
"""

from __future__ import annotations

import json
import math
import struct
import zlib
from collections.abc import Iterable
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from golow.records.errors import GolowError
from golow.records.record import Record
from golow.storage.files import CACHE_HINT, replacing, writing

Images = NDArray[np.uint8]
Labels = NDArray[np.int64]

_LONGEST_NUMBER = -1.2345678901234567e-100  # as JSON; a placeholder until the checksum is known
_LARGEST_HEADER = 1 << 24
_PIECE = 1 << 24  # bytes read at once for a checksum


class ImageFacts(Record, frozen=True, kw_only=True):
    """The metadata of a prepared file.

    mean and deviation have one number per channel, of pixels/255 of the training set. checksum is
    the CRC-32 of the labels' bytes and then the images', as 8 hexadecimal digits.
    """

    dataset: str
    part: str
    classes: tuple[str, ...]
    mean: tuple[float, ...] = ()
    deviation: tuple[float, ...] = ()
    checksum: str = ""
    source: str = ""


class PreparedImages(NamedTuple):
    """A prepared part: labels int64 [N], images uint8 [N, C, H, W], both memory-mapped."""

    labels: Labels
    images: Images
    facts: ImageFacts


# ---------------------------------------------------------------- writing


def write_images(
    path: Path,
    labels: Labels,
    batches: Iterable[Images],
    shape: tuple[int, int, int],
    facts: ImageFacts,
) -> ImageFacts:
    """Write labels [N] and batches of images [n, *shape], N in total; the file appears complete.

    Facts without mean and deviation get those of these images. Returns the facts as written.

    Raises:
        GolowError: a channel is constant, so its deviation is 0; or the file cannot be written.
        ValueError: there are no samples, or the numbers of labels and images differ.
    """
    labels = np.ascontiguousarray(labels, dtype="<i8")
    if not len(labels):
        raise ValueError("a prepared file has at least one sample")
    with writing(path, CACHE_HINT):
        path.parent.mkdir(parents=True, exist_ok=True)
        with replacing(path) as file:
            return _write(file, labels, batches, shape, facts)


def _write(
    file: BinaryIO,
    labels: Labels,
    batches: Iterable[Images],
    shape: tuple[int, int, int],
    facts: ImageFacts,
) -> ImageFacts:
    """The header comes last, into room that is left for it: it has the checksum and the moments."""
    longest = (_LONGEST_NUMBER,) * shape[0]
    reserved = msgspec.structs.replace(facts, mean=longest, deviation=longest, checksum="0" * 8)
    room = len(_header(len(labels), shape, reserved))
    histogram = np.zeros((shape[0], 256), dtype=np.int64)
    file.seek(room)
    file.write(labels.data)
    written, checksum = 0, zlib.crc32(labels.data)
    for batch in map(np.ascontiguousarray, batches):
        if batch.dtype != np.uint8 or batch.shape[1:] != shape:
            raise ValueError(f"a batch is {batch.dtype} {batch.shape}, not uint8 [n, *{shape}]")
        file.write(batch.data)
        written, checksum = written + len(batch), zlib.crc32(batch.data, checksum)
        if not facts.mean:
            histogram += _histogram(batch)
    if written != len(labels):
        raise ValueError(f"{written} images for {len(labels)} labels")
    if not facts.mean:
        mean, deviation = _moments(histogram, facts)
        facts = msgspec.structs.replace(facts, mean=mean, deviation=deviation)
    facts = msgspec.structs.replace(facts, checksum=f"{checksum:08x}")
    file.seek(0)
    file.write(_header(len(labels), shape, facts, room))
    return facts


def _header(count: int, shape: tuple[int, ...], facts: ImageFacts, room: int = 0) -> bytes:
    """The header after its length, padded with spaces to room bytes or a multiple of 8, so that
    the labels are aligned."""
    ends = 8 * count, 8 * count + count * math.prod(shape)
    fields = {
        "__metadata__": {
            "dataset": facts.dataset,
            "part": facts.part,
            "classes": json.dumps(facts.classes),
            "mean": json.dumps(facts.mean),
            "deviation": json.dumps(facts.deviation),
            "checksum": facts.checksum,
            "source": facts.source,
        },
        "labels": {"dtype": "I64", "shape": [count], "data_offsets": [0, ends[0]]},
        "images": {"dtype": "U8", "shape": [count, *shape], "data_offsets": list(ends)},
    }
    text = json.dumps(fields, separators=(",", ":")).encode()
    length = room - 8 if room else -(-len(text) // 8) * 8
    return struct.pack("<Q", length) + text.ljust(length)


def _histogram(batch: Images) -> NDArray[np.int64]:
    """Count of each value in each channel [C, 256]: exact, whatever the batches."""
    return np.stack([np.bincount(plane.ravel(), minlength=256) for plane in batch.swapaxes(0, 1)])


def _moments(
    histogram: NDArray[np.int64], facts: ImageFacts
) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Mean and standard deviation of pixels/255 in each channel, from exact sums."""
    values = range(256)
    mean, deviation = [], []
    for channel, counts in enumerate(histogram.tolist()):
        n = sum(counts)
        total = sum(c * v for c, v in zip(counts, values, strict=True))
        squares = sum(c * v * v for c, v in zip(counts, values, strict=True))
        mean.append(total / (255 * n))
        deviation.append(math.sqrt(n * squares - total * total) / (255 * n))
        if deviation[-1] == 0.0:
            raise GolowError(
                f"channel {channel} of {facts.dataset} ({facts.part}) has the same value in every "
                "pixel and cannot be normalised",
                "look at the images: they may be blank or all black.",
            )
    return tuple(mean), tuple(deviation)


# ---------------------------------------------------------------- reading


def open_images(path: Path, verify: bool = False) -> PreparedImages:
    """The prepared part in a file, memory-mapped; with verify the checksum is compared.

    Raises:
        GolowError: the file is missing, truncated, or was not written by `write_images`; a label
            is not a class; with verify, the checksum differs.
    """
    try:
        with path.open("rb") as file:
            prepared = _open(path, file)
    except (OSError, ValueError, RecursionError, msgspec.MsgspecError) as error:
        raise _refused(path, str(error)) from error
    if verify:
        found = _checksum(prepared.labels, prepared.images)
        if found != prepared.facts.checksum:
            raise _refused(path, f"its checksum is {found}, not {prepared.facts.checksum}")
    return prepared


def _open(path: Path, file: BinaryIO) -> PreparedImages:
    """Raises ValueError for anything but a prepared file."""
    size = path.stat().st_size
    length = int.from_bytes(file.read(8), "little")
    if size < 8 or length > min(size - 8, _LARGEST_HEADER):
        raise ValueError(f"it has {size:,} bytes, but its header alone should have {length:,}")
    header = msgspec.json.decode(file.read(length), type=dict[str, dict[str, Any]])
    fields = msgspec.convert(header.pop("__metadata__", {}), dict[str, str])
    if set(header) != {"labels", "images"}:
        raise ValueError("it has tensors other than labels and images")
    tensors = {name: msgspec.convert(entry, _Entry) for name, entry in header.items()}
    labels, images = tensors["labels"], tensors["images"]
    count = labels.shape[0] if labels.shape else 0
    if (labels.dtype, len(labels.shape)) != ("I64", 1) or count < 1:
        raise ValueError("its labels are not a list of int64")
    if (images.dtype, len(images.shape)) != ("U8", 4) or images.shape[0] != count:
        raise ValueError(f"its images are not uint8 [{count}, C, H, W]")
    ends = 8 * count, 8 * count + math.prod(images.shape)
    if min(images.shape) < 1 or (labels.data_offsets, images.data_offsets) != ((0, ends[0]), ends):
        raise ValueError("its tensors are not contiguous")
    if size != 8 + length + ends[1]:
        raise ValueError(f"it has {size:,} bytes, not the {8 + length + ends[1]:,} it should have")
    facts = msgspec.convert(
        {
            name: json.loads(text) if name in ("classes", "mean", "deviation") else text
            for name, text in fields.items()
        },
        ImageFacts,
    )
    if not len(facts.mean) == len(facts.deviation) == images.shape[1]:
        raise ValueError("its mean and deviation do not have one number per channel")
    if not all(map(math.isfinite, facts.mean + facts.deviation)) or min(facts.deviation) <= 0:
        raise ValueError("its mean is not finite, or its deviation not positive and finite")
    mapped = np.memmap(path, dtype=np.uint8, mode="r", offset=8 + length)
    prepared = PreparedImages(
        mapped[: ends[0]].view("<i8"), mapped[ends[0] :].reshape(images.shape), facts
    )
    _require_classes(prepared.labels, facts)
    return prepared


class _Entry(Record, frozen=True, kw_only=True):
    """One tensor in the header of a safetensors file."""

    dtype: str
    shape: tuple[int, ...]
    data_offsets: tuple[int, int]


def _require_classes(labels: Labels, facts: ImageFacts) -> None:
    """Every label is a class, or all are -1 (an unlabelled part)."""
    low, high = int(labels.min()), int(labels.max())
    if not 0 <= low <= high < len(facts.classes) and not low == high == -1:
        raise ValueError(f"its labels range from {low} to {high}, for {len(facts.classes)} classes")


def _checksum(labels: Labels, images: Images) -> str:
    checksum = zlib.crc32(labels.tobytes())
    flat = images.reshape(-1)
    for start in range(0, len(flat), _PIECE):
        checksum = zlib.crc32(flat[start : start + _PIECE].tobytes(), checksum)
    return f"{checksum:08x}"


def _refused(path: Path, reason: str) -> GolowError:
    return GolowError(
        f"{path} is not a prepared data set: {reason}",
        "delete it; golow prepares it again from the data set.",
    )
