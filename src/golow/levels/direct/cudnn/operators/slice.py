"""A range of a tensor along an axis."""

from __future__ import annotations

from typing import TYPE_CHECKING

from golow.levels.direct.cudnn.build.joint_copies import copied_together
from golow.levels.direct.implementation import Implementation
from golow.lower.operators.slice import Slice

if TYPE_CHECKING:
    from golow.levels.direct.cudnn.build.builder import Builder


def take_range(build: Builder, arguments: Slice) -> None:
    """A view with an offset and, along the axis, a longer stride; of a copy of the whole where
    each of its ranges would be copied."""
    tensor = copied_together(build, arguments.x) or build.values.view(arguments.x)
    strides = list(tensor.layout.strides(tensor.shape))
    start = arguments.start * strides[arguments.axis]
    strides[arguments.axis] *= arguments.step
    build.values.look(tensor, strides, start)


IMPLEMENTATIONS = (Implementation(Slice, take_range),)
