"""Refuses memory of the caller's that a plan would write while it reads it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from golow.records.errors import GolowError

if TYPE_CHECKING:
    from torch import Tensor

Span = tuple[int, int]
"""An address, and bytes from there."""


def spans(tensors: Sequence[Tensor]) -> list[Span]:
    """Return where tensors are."""
    return [(item.data_ptr(), item.nbytes) for item in tensors]


def require_apart(inputs: Sequence[Span], outputs: Sequence[Span]) -> None:
    """Raise `GolowError` for outputs that share memory with an input or with one another."""
    taken = [(start, start + size) for start, size in inputs]
    for place, (start, size) in enumerate(outputs):
        for number, (other, other_end) in enumerate(taken):
            if start < other_end and other < start + size:
                which = f"input {number}"
                if number >= len(inputs):
                    which = f"output {number - len(inputs)}"
                raise GolowError(f"output {place} of out shares memory with {which}")
        taken.append((start, start + size))
