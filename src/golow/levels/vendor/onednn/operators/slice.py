"""A range of a tensor along an axis."""

from __future__ import annotations

from typing import Any

from golow.levels.vendor.implementation import Implementation
from golow.levels.vendor.onednn.arrays import of_arrays
from golow.levels.vendor.onednn.builder import Builder
from golow.levels.vendor.onednn.constants import DST, SRC
from golow.levels.vendor.onednn.copying import copied, strided, view_of
from golow.levels.vendor.onednn.primitive import Primitive
from golow.levels.vendor.onednn.seen import dense
from golow.lower.operators.slice import Slice


def take_range(build: Builder, arguments: Slice) -> None:
    """Add a copy; oneDNN reads the part in place."""
    x, output = build.tensor(arguments.x), build.output()
    if x.descriptor is None or arguments.step != 1:
        _by_steps(build, arguments)
        return
    if x.layout.blocks:
        x = build.plain(arguments.x)
    offsets = [0] * len(x.shape)
    offsets[arguments.axis] = arguments.start
    part = x.layout.part(output.shape, offsets)
    target = dense(output.shape, x.layout.strides)
    primitive = Primitive(build.engine, "reorder", part, target)
    if build.generates and not primitive.implementation.startswith("jit"):
        _by_steps(build, arguments)
        return
    result = build.new(output.name, output.shape, target)
    build.call(primitive, {SRC: x._replace(descriptor=part)}, {DST: result})
    build.define(0, result)


def _by_steps(build: Builder, arguments: Slice) -> None:
    """A row-major copy, for which the library has no code, or only its slow one."""
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
