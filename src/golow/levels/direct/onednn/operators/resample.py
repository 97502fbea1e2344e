"""Images and volumes in another size, and the gradient."""

from __future__ import annotations

from golow.levels.direct.implementation import Implementation
from golow.levels.direct.onednn.bindings.constants import (
    DIFF_DST,
    DIFF_SRC,
    DST,
    RESAMPLING_LINEAR,
    RESAMPLING_NEAREST,
    SRC,
)
from golow.levels.direct.onednn.bindings.library import Descriptor, channel_block
from golow.levels.direct.onednn.bindings.primitive import Primitive
from golow.levels.direct.onednn.build.builder import Builder
from golow.levels.direct.onednn.kernels.resampling import resampling_backward
from golow.levels.direct.onednn.steps.reorders import is_generic
from golow.levels.direct.onednn.steps.strided_views import dense
from golow.levels.direct.refusing import refuse_integers
from golow.lower.operators.resample import Resample, ResampleBackward

ALGORITHMS = {"nearest": RESAMPLING_NEAREST, "linear": RESAMPLING_LINEAR}


def resample(build: Builder, arguments: Resample) -> None:
    """In the layout of x."""
    x, output = build.values.tensor(arguments.x), build.current.output()
    primitive = _forward(build, arguments, x.layout, Descriptor.tagged(output.shape))
    result = build.memory.new(output.name, output.shape, primitive.descriptor(DST))
    build.steps.call(primitive, {SRC: x}, {DST: result})
    build.values.define(0, result)


def resample_backward(build: Builder, arguments: ResampleBackward) -> None:
    """In the layout of the gradient; of a volume in blocks, row-major. By a generated kernel where
    the library has only its generic code: with channels last instead of row-major, since it
    computes a pixel's channels together."""
    outer, output = build.values.tensor(arguments.gradient), build.current.output()
    name, shape = output.name, output.shape
    if outer.layout.blocks and len(shape) > 4:
        outer = build.values.plain(arguments.gradient)
    primitive = _backward(build, arguments, outer.layout)
    around = _around(outer.layout) if build.generates and is_generic(primitive) else None
    if around is None:
        result = build.memory.new(
            build.current.output_name(), shape, primitive.descriptor(DIFF_SRC)
        )
        build.steps.call(primitive, {DIFF_DST: outer}, {DIFF_SRC: result})
    else:
        layout = _as(outer.layout, shape)
        if outer.layout.is_plain:  # also a single pixel, in which both orders are the same
            outer = build.values.wanted(arguments.gradient, _channels_last(outer.shape))
            around, layout = (outer.shape[0], outer.shape[1]), _channels_last(shape)
        result = build.memory.new(name, shape, layout)
        before, side_by_side = around
        kernel = resampling_backward(
            before, arguments.size, outer.shape[2:], side_by_side, arguments.mode == "linear"
        )
        build.steps.kernel(kernel, [outer], [result])
    build.values.define(0, result)


def _backward(build: Builder, arguments: ResampleBackward, outer: Descriptor) -> Primitive:
    inner = _as(outer, build.current.output().shape)
    hint = _forward(build, arguments, inner, outer)
    return Primitive(
        build.engine, "resampling_backward", ALGORITHMS[arguments.mode], None, inner, outer,
        hint.description,
    )  # fmt: skip


def _around(layout: Descriptor) -> tuple[int, int] | None:
    """The images in memory, and the elements of a pixel that are side by side; None for another
    layout than the three of images."""
    batch, channels, *_ = layout.shape
    if layout.blocks:
        size = channel_block().size
        blocked = layout == Descriptor.tagged(layout.shape, channel_block().tag)
        return (batch * -(-channels // size), size) if blocked else None
    if layout.is_plain:
        return batch * channels, 1
    return (batch, channels) if layout == _channels_last(layout.shape) else None


def _channels_last(shape: tuple[int, ...]) -> Descriptor:
    return Descriptor.ordered(shape, (0, *range(2, len(shape)), 1))


def _forward(
    build: Builder, arguments: Resample | ResampleBackward, source: Descriptor, target: Descriptor
) -> Primitive:
    return Primitive(
        build.engine, "resampling_forward", build.forward_kind, ALGORITHMS[arguments.mode], None,
        source, target,
    )  # fmt: skip


def _as(layout: Descriptor, shape: tuple[int, ...]) -> Descriptor:
    """Another shape in the same layout."""
    if layout.blocks:
        return Descriptor.tagged(shape, channel_block().tag)
    return dense(shape, layout.strides)


IMPLEMENTATIONS = (
    Implementation(Resample, resample, refuse_integers),
    Implementation(ResampleBackward, resample_backward, refuse_integers),
)
