"""A tensor with its axes permuted."""

from __future__ import annotations

from typing import Any

from golow.levels.direct.implementation import Implementation
from golow.levels.direct.onednn.build.builder import Builder
from golow.levels.direct.onednn.steps.array_steps import of_arrays
from golow.levels.direct.onednn.steps.strided_copies import copied, view_of
from golow.lower.operators.permute import Permute


def permute(build: Builder, arguments: Permute) -> None:
    """A view, of integers a copy; from blocks, row-major."""
    if build.current.output().dtype != "float32":
        order = arguments.order
        if build.generates:
            tensor = build.values.tensor(arguments.x)
            view = view_of(tensor, tensor.shape)
            strides = tuple(view.strides[axis] for axis in order)
            copied(build, tensor, view._replace(strides=strides))
            return

        def run(x: Any, y: Any) -> None:
            y[...] = x.transpose(order)

        of_arrays(build, run, arguments.x)
        return
    build.views.define(build.views.of(arguments.x).permuted(arguments.order))


IMPLEMENTATIONS = (Implementation(Permute, permute),)
