"""Axes reversed: a copy that reads backwards."""

from __future__ import annotations

from typing import TYPE_CHECKING

from golow.levels.direct.cudnn.steps.strided_copies import gather
from golow.levels.direct.implementation import Implementation
from golow.lower.operators.flip import Flip

if TYPE_CHECKING:
    from golow.levels.direct.cudnn.build.builder import Builder


def flip(build: Builder, arguments: Flip) -> None:
    """Add a copy that reads from the end of these axes, with negative strides."""
    tensor = build.values.tensor(arguments.x)
    strides = list(tensor.layout.strides(tensor.shape))
    start = sum((tensor.shape[axis] - 1) * strides[axis] for axis in arguments.axes)
    for axis in arguments.axes:
        strides[axis] = -strides[axis]
    gather(build, tensor, strides, start)


IMPLEMENTATIONS = (Implementation(Flip, flip),)
