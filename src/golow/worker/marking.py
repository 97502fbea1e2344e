"""Writes marks into batches that are NumPy arrays."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy.typing as npt

from golow.records.errors import GolowError
from golow.worker.protocol import Marks


@contextmanager
def marked_arrays(
    batches: Sequence[Sequence[npt.NDArray[Any]]], marks: Marks, next_iteration: Callable[[], int]
) -> Iterator[Callable[[float], None]]:
    """A function that writes a value into the marked part of the next iteration's batch.

    batches: of every batch the inputs, contiguous. The original values are back on leaving.
    """
    parts = [marked_part(batch[marks.input], marks) for batch in batches]
    saved = [part.copy() for part in parts]

    def write(value: float) -> None:
        parts[next_iteration() % len(parts)][...] = value

    try:
        yield write
    finally:
        for part, values in zip(parts, saved, strict=True):
            part[...] = values


def marked_part(array: npt.NDArray[Any], marks: Marks) -> npt.NDArray[Any]:
    """A view of the marked elements, [samples, length]. Raises ValueError for an array that is not
    contiguous, of which there is no such view, and `GolowError` for marks outside of a sample."""
    flat = array.view()
    flat.shape = (len(array), -1)  # unlike reshape, this never copies
    return flat[:, marked_span(marks, flat.shape[1])]


def marked_span(marks: Marks, size: int) -> slice:
    """The marked elements of a sample with so many; raises `GolowError` if some lie outside."""
    end = marks.start + marks.length
    if not 0 <= marks.start <= end <= size:
        raise GolowError(f"a sample of {size} elements has no elements {marks.start} to {end}")
    return slice(marks.start, end)
