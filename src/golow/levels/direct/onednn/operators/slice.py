"""A range of a tensor along an axis."""

from __future__ import annotations

from typing import Any

from golow.levels.direct.implementation import Implementation
from golow.levels.direct.onednn.build.builder import Builder
from golow.levels.direct.onednn.steps.array_steps import of_arrays
from golow.levels.direct.onednn.steps.strided_copies import copied, strided, view_of
from golow.levels.direct.onednn.steps.value_views import folded, sliced
from golow.lower.operators.slice import Slice


def take_range(build: Builder, arguments: Slice) -> None:
    """A view, or a copy where the axis is joined from parts."""
    size, shape = arguments.stop - arguments.start, build.current.output().shape
    if build.current.output().dtype != "float32" or arguments.step != 1 or 0 in shape:
        _by_steps(build, arguments)
        return
    view = sliced(build.views.of(arguments.x), arguments.axis, arguments.start, size)
    if view is None:
        whole = folded(build.values.tensor(arguments.x))
        view = sliced(whole, arguments.axis, arguments.start, size)
    if view is None:
        raise LookupError(f"an axis of {arguments.x.name} has several strides")
    build.views.define(view)


def _by_steps(build: Builder, arguments: Slice) -> None:
    """A row-major copy of a tensor that is not float or has gaps."""
    if not build.generates:
        _with_numpy(build, arguments)
        return
    axis, tensor = arguments.axis, strided(build, arguments.x)
    view = view_of(tensor, tensor.shape)
    first = view.start + arguments.start * view.strides[axis]
    strides = list(view.strides)
    strides[axis] *= arguments.step
    copied(build, tensor, view._replace(strides=tuple(strides), start=first))


def _with_numpy(build: Builder, arguments: Slice) -> None:
    part = slice(arguments.start, arguments.stop, arguments.step)
    places = (*[slice(None)] * arguments.axis, part)

    def run(x: Any, y: Any) -> None:
        y[...] = x[places]

    of_arrays(build, run, arguments.x)


IMPLEMENTATIONS = (Implementation(Slice, take_range),)
