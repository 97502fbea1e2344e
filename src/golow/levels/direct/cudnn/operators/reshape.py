"""Reshape: equal elements with another shape."""

from __future__ import annotations

from typing import TYPE_CHECKING

from golow.levels.direct.cudnn.problems.layouts import Layout
from golow.levels.direct.implementation import Implementation
from golow.lower.operators.reshape import Reshape

if TYPE_CHECKING:
    from golow.levels.direct.cudnn.build.builder import Builder


def reshape(build: Builder, arguments: Reshape) -> None:
    """A view where steps through memory can say it, otherwise of a copy in PyTorch's order."""
    view = build.values.folded(arguments.x).reshaped(arguments.shape)
    if view is not None:
        build.values.fold(view)
        return
    tensor = build.values.rows(arguments.x)
    build.values.define(0, tensor._replace(shape=arguments.shape, layout=Layout(tensor.dtype)))


IMPLEMENTATIONS = (Implementation(Reshape, reshape),)
