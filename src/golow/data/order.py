"""The order of an epoch and its augmentation, which depend only on seed and epoch.

They are computed from the raw 64-bit words of NumPy's Philox generator, seeded by its SeedSequence.
NumPy guarantees both to be stable, unlike the methods of its ``Generator`` (``permutation``,
``integers``), which may change with a release; a runtime in another language can reproduce them.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import save

from golow.storage.files import CACHE_HINT, write_whole, writing

_ROWS, _SHIFTS, _FLIPS = range(3)  # one stream of words each


def epoch_order(samples: int, seed: int, epoch: int) -> NDArray[np.int64]:
    """The rows of an epoch [samples], a permutation of range(samples): row i gets word i, and rows
    are sorted by their words."""
    return np.argsort(_words(samples, seed, epoch, _ROWS), kind="stable").astype(np.int64)


def augmentation(
    samples: int, seed: int, epoch: int, padding: int, flip: bool
) -> tuple[NDArray[np.int8] | None, NDArray[np.uint8] | None]:
    """Shifts (dy, dx) [samples, 2], each from -padding to padding, and flips [samples], 0 or 1.

    They are aligned with the epoch's rows: the first belongs to the first row of the order. None
    without augmentation: padding 0, no flip. padding is at most 127.
    """
    if not 0 <= padding <= 127:
        raise ValueError(f"padding is 0 to 127 pixels, not {padding}")
    shifts = flips = None
    if padding:
        words = _words(2 * samples, seed, epoch, _SHIFTS) % np.uint64(2 * padding + 1)
        shifts = (words.astype(np.int64) - padding).astype(np.int8).reshape(samples, 2)
    if flip:
        flips = (_words(samples, seed, epoch, _FLIPS) >> np.uint64(63)).astype(np.uint8)
    return shifts, flips


def _words(count: int, seed: int, epoch: int, stream: int) -> NDArray[np.uint64]:
    if not (0 <= seed < 2**64 and 0 <= epoch < 2**32):
        raise ValueError(f"seed {seed} or epoch {epoch} is negative or too large")
    # Always four words of 32 bits: SeedSequence pads fewer with zeros, so that different
    # (seed, epoch) could give the same stream.
    entropy = [seed % 2**32, seed // 2**32, epoch, stream]
    return np.random.Philox(np.random.SeedSequence(entropy)).random_raw(count)


def write_order(
    path: Path,
    rows: NDArray[np.int64],
    shifts: NDArray[np.int8] | None = None,
    flips: NDArray[np.uint8] | None = None,
) -> None:
    """Write an epoch's order for the workers: a safetensors file, written whole or not at all.

    rows int64 [N], any list of rows; shifts int8 [N, 2] and flips uint8 [N] are aligned with it.
    """
    tensors: dict[str, np.ndarray] = {"rows": np.ascontiguousarray(rows, dtype=np.int64)}
    if shifts is not None:
        tensors["shifts"] = np.ascontiguousarray(shifts, dtype=np.int8)
    if flips is not None:
        tensors["flips"] = np.ascontiguousarray(flips, dtype=np.uint8)
    if any(len(tensor) != len(rows) for tensor in tensors.values()):
        raise ValueError("shifts and flips need one entry per row")
    with writing(path, CACHE_HINT):
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, save(tensors))
