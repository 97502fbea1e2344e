"""A range of a tensor along an axis."""

from __future__ import annotations

from typing import TYPE_CHECKING

from golow.levels.direct.implementation import Implementation
from golow.lower.operators.slice import Slice

if TYPE_CHECKING:
    from golow.levels.direct.cudnn.build.builder import Builder


def take_range(build: Builder, arguments: Slice) -> None:
    """A view with an offset and, along the axis, a longer stride."""
    tensor = build.values.view(arguments.x)
    strides = list(tensor.layout.strides(tensor.shape))
    start = arguments.start * strides[arguments.axis]
    strides[arguments.axis] *= arguments.step
    build.values.look(arguments.x, strides, start)


IMPLEMENTATIONS = (Implementation(Slice, take_range),)
