"""Views whose axes are joined from several steps through memory.

Joining two axes of a permuted tensor gives an axis that no single stride describes. PyTorch copies
there. The axes may be split again, though (the heads of attention are), or nothing may depend on
their order (the rows of a linear layer). So such a view is remembered in its parts, and copied only
where something needs a tensor.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Generic, NamedTuple, TypeVar

Held = TypeVar("Held")


class Part(NamedTuple):
    """A part of an axis: its size, and elements from one index to the next."""

    size: int
    step: int


Axis = tuple[Part, ...]


class Folded(NamedTuple, Generic[Held]):
    """A view: a level's tensor that has the memory, from its first element on, and each axis's
    parts, outermost first."""

    tensor: Held
    axes: tuple[Axis, ...]

    @property
    def shape(self) -> tuple[int, ...]:
        """The sizes of all axes."""
        return tuple(math.prod(part.size for part in axis) for axis in self.axes)

    @property
    def parts(self) -> list[Part]:
        """All parts, the outermost axis first."""
        return [part for axis in self.axes for part in axis]

    @property
    def strides(self) -> tuple[int, ...] | None:
        """One stride for each axis; None if an axis needs several."""
        if any(len(axis) > 1 for axis in self.axes):
            return None
        found: list[int] = []
        for axis in reversed(self.axes):
            inner = found[-1] if found else 1
            found.append(axis[0].step if axis else inner)
        return tuple(reversed(found))

    def permuted(self, order: Sequence[int]) -> Folded[Held]:
        """The axes in another order."""
        return Folded(self.tensor, tuple(self.axes[axis] for axis in order))

    def reshaped(self, shape: Sequence[int]) -> Folded[Held] | None:
        """The elements in their order with another shape; None if a part would have to be
        divided into sizes that do not divide it."""
        parts, axes = self.parts, []
        for size in reversed(shape):
            taken: list[Part] = []
            while size > 1:
                if not parts:
                    return None
                part = parts.pop()
                if size % part.size == 0:
                    taken.append(part)
                    size //= part.size
                elif part.size % size == 0:
                    parts.append(Part(part.size // size, part.step * size))
                    taken.append(Part(size, part.step))
                    size = 1
                else:
                    return None
            axes.append(joined(reversed(taken)))
        return Folded(self.tensor, tuple(reversed(axes)))


def joined(parts: Iterable[Part]) -> Axis:
    """The axis with adjacent parts merged where one continues the other."""
    found: list[Part] = []
    for part in parts:
        if found and found[-1].step == part.size * part.step:
            part = Part(found.pop().size * part.size, part.step)
        found.append(part)
    return tuple(found)


def rows_in_memory(view: Folded[Held]) -> int | None:
    """The step between rows if the rows of the last axis follow one another in memory, in any
    order; None otherwise."""
    *outer, last = view.axes
    if len(last) != 1 or last[0].step != 1:
        return None
    parts = sorted((part for axis in outer for part in axis), key=lambda part: part.step)
    step = first = parts[0].step if parts else last[0].size
    for part in parts:
        if part.step != step or step < last[0].size:
            return None
        step *= part.size
    return first
