"""The indices at which a generated kernel computes, divided so that it reads views in parts as they
are stored."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from golow.levels.direct.cudnn.steps.split_axis_views import Folded
from golow.lower.ir.graph import Ref

if TYPE_CHECKING:
    from golow.levels.direct.cudnn.build.builder import Builder


class Indices(NamedTuple):
    """A shape, the sizes into which each of its axes is divided, and views of that shape which have
    one stride for each of those, by their values' names."""

    division: tuple[tuple[int, ...], ...]
    views: Mapping[str, Folded]

    @property
    def sizes(self) -> tuple[int, ...]:
        """All sizes, the outermost axis first."""
        return tuple(size for axis in self.division for size in axis)

    def strides(self, steps: Sequence[int]) -> tuple[int, ...]:
        """For each size the stride of an operand that has one for each axis."""
        return tuple(
            step * math.prod(axis[place + 1 :])
            for axis, step in zip(self.division, steps, strict=True)
            for place in range(len(axis))
        )

    def strides_of(self, name: str) -> tuple[int, ...]:
        """Strides of one of the views."""
        view = self.views[name].reshaped(self.sizes)
        assert view is not None and view.strides is not None  # noqa: S101 - so it was divided
        return view.strides


def divided(shape: Sequence[int], views: Mapping[str, Folded]) -> Indices | None:
    """The indices of a shape at which all these views have strides; None if there are none."""
    division = [_divided(size, axis, views.values()) for axis, size in enumerate(shape)]
    return Indices(tuple(division), views) if all(division) else None


def indices_for(build: Builder, operands: Sequence[Ref], shape: tuple[int, ...]) -> Indices:
    """The indices of a shape at which most operands of that shape have strides, if their innermost
    elements are side by side; others are copied in the order of the shape."""
    found = whole(shape)
    for reference in operands:
        if build.current.value(reference).shape != shape:
            continue
        view = build.values.folded(reference)
        if view.strides is None and view.axes[-1] and view.axes[-1][-1].step == 1:
            found = divided(shape, {**found.views, reference.name: view}) or found
    return found


def whole(shape: Sequence[int]) -> Indices:
    """The indices of a shape as they are."""
    return Indices(tuple((size,) for size in shape), {})


def _divided(size: int, axis: int, views: Iterable[Folded]) -> tuple[int, ...]:
    """The fewest sizes that the parts of an axis consist of in all views; none if there are no
    such sizes."""
    below = {1, size}
    for view in views:
        inner = 1
        for part in reversed(view.axes[axis]):
            inner *= part.size
            below.add(inner)
    ordered = sorted(below)
    pairs = list(zip(ordered[1:], ordered, strict=False))
    if any(outer % inner for outer, inner in pairs):
        return ()
    return tuple(outer // inner for outer, inner in reversed(pairs)) or (1,)
