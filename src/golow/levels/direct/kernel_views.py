"""Tensors as a generated kernel sees them, and the fewest axes that describe a loop over them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple


class View(NamedTuple):
    """A tensor as the result's indices see it: storage type, elements from one index to the next
    for each axis (zero repeats), and the first element."""

    dtype: str
    strides: tuple[int, ...]
    start: int = 0


class Axes(NamedTuple):
    """The fewest axes that describe where all tensors have their elements: sizes, and each tensor's
    strides."""

    sizes: tuple[int, ...]
    strides: tuple[tuple[int, ...], ...]


def merged_axes(shape: Sequence[int], views: Sequence[View], first_output: int) -> Axes:
    """Return the fewest axes: those of one element are dropped, the others ordered as the first
    output is in memory, and neighbours joined where all tensors continue as they began."""
    lead = views[first_output].strides
    order = sorted((k for k, n in enumerate(shape) if n != 1), key=lambda k: -lead[k])
    sizes = [shape[k] for k in order]
    strides = [[view.strides[k] for k in order] for view in views]
    for axis in reversed(range(len(sizes) - 1)):
        if all(steps[axis] == steps[axis + 1] * sizes[axis + 1] for steps in strides):
            sizes[axis] *= sizes.pop(axis + 1)
            for steps in strides:
                del steps[axis]
    if not sizes:
        return Axes((1,), tuple((0,) for _ in views))
    return Axes(tuple(sizes), tuple(map(tuple, strides)))
