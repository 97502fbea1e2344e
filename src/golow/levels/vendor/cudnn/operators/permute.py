"""A tensor with its axes permuted."""

from __future__ import annotations

from typing import TYPE_CHECKING

from golow.levels.vendor.cudnn.gathering import gather
from golow.levels.vendor.cudnn.layouts import Order
from golow.levels.vendor.implementation import Implementation
from golow.lower.operators.permute import Permute

if TYPE_CHECKING:
    from golow.levels.vendor.cudnn.builder import Builder


def permute(build: Builder, arguments: Permute) -> None:
    """A view if only the axes of a matrix are swapped, otherwise a copy."""
    tensor = build.tensor(arguments.x)
    if arguments.order == (1, 0) and tensor.layout.order in ("rows", "transposed"):
        turned: Order = "transposed" if tensor.layout.order == "rows" else "rows"
        layout = tensor.layout._replace(order=turned)
        build.define(0, tensor._replace(shape=build.output().shape, layout=layout))
        return
    strides = tensor.layout.strides(tensor.shape)
    gather(build, tensor, [strides[axis] for axis in arguments.order])


IMPLEMENTATIONS = (Implementation(Permute, permute),)
