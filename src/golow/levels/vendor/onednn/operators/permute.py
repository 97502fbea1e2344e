"""A tensor with its axes permuted."""

from __future__ import annotations

from typing import Any

from golow.levels.vendor.implementation import Implementation
from golow.levels.vendor.onednn.arrays import of_arrays
from golow.levels.vendor.onednn.builder import Builder
from golow.levels.vendor.onednn.copying import copied, view_of
from golow.lower.operators.permute import Permute


def permute(build: Builder, arguments: Permute) -> None:
    """A view, of integers a copy; a blocked layout is first reordered to row-major."""
    tensor = build.tensor(arguments.x)
    if tensor.descriptor is None:
        order = arguments.order
        if build.generates:
            view = view_of(tensor, tensor.shape)
            strides = tuple(view.strides[axis] for axis in order)
            copied(build, tensor, view._replace(strides=strides))
            return

        def run(x: Any, y: Any) -> None:
            y[...] = x.transpose(order)

        of_arrays(build, run, arguments.x)
        return
    if tensor.layout.blocks:
        tensor = build.plain(arguments.x)
    build.define(0, tensor._replace(descriptor=tensor.layout.permuted(arguments.order)))


IMPLEMENTATIONS = (Implementation(Permute, permute),)
