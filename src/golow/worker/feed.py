"""The batches of an epoch, gathered from a prepared data set, and the arithmetic of an input.

A prepared data set is one safetensors file: ``images`` uint8 [N, C, H, W] and ``labels`` int64 [N],
or of a text ``tokens`` and ``labels``, both int64 [N, sequence], which are inputs as they are; an
order is another, ``rows`` int64, and with augmentation ``shifts`` int8 [rows, 2] and ``flips``
uint8 [rows]. Nothing here imports a framework: workers without one compute their inputs by the
functions below, the others by the same arithmetic on their device.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt
from safetensors import SafetensorError, safe_open

from golow.records.errors import GolowError

Pixels = npt.NDArray[np.uint8]
Stored = npt.NDArray[np.uint8] | npt.NDArray[np.int64]
Labels = npt.NDArray[np.int64]
Shifts = npt.NDArray[np.int8]
Floats = npt.NDArray[np.float32]


class Fed(NamedTuple):
    """One batch as stored in the data set.

    pixels: uint8 [n, C, H, W], before augmentation, or tokens int64 [n, sequence]. labels: int64,
    [n] or of the tokens' shape. shifts: int8 [n, 2], rows
    and columns by which each image is shifted, None without shifts. flips: uint8 [n], 1 for an
    image flipped left to right.
    """

    pixels: Stored
    labels: Labels
    shifts: Shifts | None = None
    flips: Pixels | None = None


class Feed:
    """Successive batches; the images are memory-mapped, not read whole.

    Batch i holds the order's rows i * batch to (i + 1) * batch, the last one the rest. Without an
    order the rows are the file's own. scale and shift: float32 [C], for `normalised`. sizes: rows
    of each batch.

    ranks: that share the order: step i takes ranks * batch rows, of which each rank gets an equal
    part; what is left of the last step's rows when they are divided is left out. own: the ranks
    whose batches are fed, in turn.

    checksum: crc32 over an order's batches so far, pixels before augmentation, then labels,
    continuing from the one given; of several own ranks one each.

    Raises `GolowError` for an invalid file, and for batches that the order does not have.
    """

    def __init__(
        self,
        data: Path,
        *,
        batch: int,
        batches: int,
        scale: Sequence[float],
        shift: Sequence[float],
        first: int = 0,
        order: Path | None = None,
        checksum: int | Sequence[int] = 0,
        ranks: int = 1,
        own: Sequence[int] = (0,),
    ) -> None:
        self.scale, self.shift = (np.array(given, np.float32) for given in (scale, shift))
        given = [checksum] * len(own) if isinstance(checksum, int) else checksum
        self._checksums = dict(zip(own, given, strict=True))
        self._images, self._labels = _map(data)
        channels = self._images.shape[1:2] if is_pixels(self._images) else (0,)
        if not self.scale.shape == self.shift.shape == channels:
            raise GolowError(f"{data}: scale and shift need one number per channel")
        self._has_order = order is not None
        self._order = _order(order, len(self._labels)) if order else _own_order(len(self._labels))
        rows = len(self._order.rows)
        there = steps(rows, batch, ranks)
        if not 0 <= first <= first + batches <= there:
            raise GolowError(
                f"batches {first} to {first + batches - 1} were requested, the order has {there}"
            )
        self._parts: list[tuple[int, slice]] = []  # each with its rank
        for start in range(first * batch * ranks, (first + batches) * batch * ranks, batch * ranks):
            share = min(batch, (rows - start) // ranks)
            firsts = ((rank, start + rank * share) for rank in own)
            self._parts += [(rank, slice(begin, begin + share)) for rank, begin in firsts]
        self.sizes = tuple(part.stop - part.start for _, part in self._parts)

    @property
    def checksum(self) -> int | tuple[int, ...]:
        """Checksum of all batches so far, by own rank."""
        found = tuple(self._checksums.values())
        return found if len(found) > 1 else found[0]

    def __iter__(self) -> Iterator[Fed]:
        return self

    def __next__(self) -> Fed:
        if not self._parts:
            raise StopIteration
        rank, rows = self._parts.pop(0)
        part = self._order.part(rows)
        pixels, labels = self._images.take(part.rows, 0), self._labels.take(part.rows, 0)
        if self._has_order:
            before = self._checksums[rank]
            self._checksums[rank] = zlib.crc32(labels.data, zlib.crc32(pixels.data, before))
        return Fed(pixels, labels, part.shifts, part.flips)


def steps(rows: int, batch: int, ranks: int = 1) -> int:
    """Steps of an epoch of this many rows, including a smaller last one. batch: of one rank."""
    return rows // (batch * ranks) + (last_batch(rows, batch, ranks) > 0)


def last_batch(rows: int, batch: int, ranks: int = 1) -> int:
    """Rows of one rank in the smaller last step; 0 if there is none."""
    return rows % (batch * ranks) // ranks


# ---------------------------------------------------------------- the arithmetic of an input


def is_pixels(stored: Stored) -> bool:
    """True if they are pixels, which become inputs by arithmetic; tokens are inputs already."""
    return stored.dtype == np.uint8


def augmented(fed: Fed) -> Stored:
    """The pixels, each image shifted, with zeros outside of it, then flipped.

    out[y][x] = in[y + dy][x + dx]; uint8 [n, C, H, W]. Tokens are not augmented.
    """
    pixels = fed.pixels
    if fed.shifts is not None:
        pixels = np.zeros_like(fed.pixels)
        height, width = pixels.shape[-2:]
        for moved, picture, (dy, dx) in zip(pixels, fed.pixels, fed.shifts.tolist(), strict=True):
            to_rows, from_rows = _overlap(height, dy)
            to_columns, from_columns = _overlap(width, dx)
            moved[:, to_rows, to_columns] = picture[:, from_rows, from_columns]
    if fed.flips is not None:
        pixels = np.where(fed.flips[:, None, None, None] != 0, pixels[..., ::-1], pixels)
    return pixels


def normalised(pixels: Stored, scale: Floats, shift: Floats) -> Floats | Labels:
    """``x * scale[c] + shift[c]`` in float32, rounded after the product and after the sum; tokens
    as they are."""
    if not is_pixels(pixels):
        return pixels.astype(np.int64, copy=False)
    result = pixels.astype(np.float32)
    result *= scale[:, None, None]
    result += shift[:, None, None]
    return result


def padded(pixels: Stored, batch: int) -> Stored:
    """The pixels, padded to a whole batch with copies of the last image."""
    missing = batch - len(pixels)
    return pixels.take([*range(len(pixels)), *[-1] * missing], 0) if missing else pixels


def _overlap(size: int, distance: int) -> tuple[slice, slice]:
    """Target and source of the remaining part of a line shifted by that distance."""
    start = min(size, max(0, -distance))
    stop = max(start, min(size, size - distance))
    return slice(start, stop), slice(start + distance, stop + distance)


# ---------------------------------------------------------------- the files


class _Order(NamedTuple):
    rows: Labels
    shifts: Shifts | None = None
    flips: Pixels | None = None

    def part(self, part: slice) -> _Order:
        shifts = self.shifts if self.shifts is None else self.shifts[part]
        flips = self.flips if self.flips is None else self.flips[part]
        return _Order(self.rows[part], shifts, flips)


def _own_order(rows: int) -> _Order:
    return _Order(np.arange(rows))


def _order(file: Path, rows: int) -> _Order:
    found = _tensors(file, ("rows", "shifts", "flips"))
    order = _Order(found["rows"], found.get("shifts"), found.get("flips"))
    count = len(order.rows)
    _require(file, "rows", order.rows, np.int64, (count,))
    _require(file, "shifts", order.shifts, np.int8, (count, 2))
    _require(file, "flips", order.flips, np.uint8, (count,))
    if count and not 0 <= order.rows.min() <= order.rows.max() < rows:
        raise GolowError(f"{file}: it contains rows beyond the {rows} of the data set")
    return order


def _map(file: Path) -> tuple[Stored, Labels]:
    """Images or tokens, and labels; images stay in the file until their pages are accessed."""
    labels = _tensors(file, ("labels",))["labels"]
    with file.open("rb") as opened:
        length = int.from_bytes(opened.read(8), "little")
        header = msgspec.json.decode(opened.read(length), type=dict[str, Any])
    if "tokens" in header:
        tokens: Labels = _tensors(file, ("tokens",))["tokens"]
        _require(file, "tokens", tokens, np.int64, (len(labels), *tokens.shape[1:2]))
        _require(file, "labels", labels, np.int64, tokens.shape)
        return tokens, labels
    entry = header.get("images", {})
    if entry.get("dtype") != "U8" or len(entry["shape"]) != 4:
        raise GolowError(f"{file}: it has no images uint8 [N, C, H, W]")
    images = np.memmap(
        file, np.uint8, "r", offset=8 + length + entry["data_offsets"][0], shape=entry["shape"]
    )
    _require(file, "labels", labels, np.int64, (len(images),))
    return np.asarray(images), labels


def _tensors(file: Path, names: tuple[str, ...]) -> dict[str, Any]:
    """The tensors that the file has; the first is required."""
    try:
        with safe_open(file, framework="numpy") as opened:
            there = set(opened.keys())
            found = {name: opened.get_tensor(name) for name in names if name in there}
    except (SafetensorError, OSError) as error:
        raise GolowError(f"{file} cannot be read: {error}") from error
    if names[0] not in found:
        raise GolowError(f"{file}: it has no tensor {names[0]!r}")
    return found


def _require(
    file: Path, name: str, array: np.ndarray | None, dtype: type[np.generic], shape: tuple[int, ...]
) -> None:
    if array is not None and (array.dtype != dtype or array.shape != shape):
        raise GolowError(
            f"{file}: {name} is {array.dtype} {list(array.shape)}, "
            f"it must be {np.dtype(dtype)} {list(shape)}"
        )
