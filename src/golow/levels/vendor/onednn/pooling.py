"""Steps over the windows of an image, which all kinds of pooling share."""

from __future__ import annotations

from typing import Any, NamedTuple

from golow.levels.vendor.onednn.builder import Builder
from golow.levels.vendor.onednn.constants import DIFF_DST, DIFF_SRC, DST, SRC, WORKSPACE
from golow.levels.vendor.onednn.library import Descriptor, dims
from golow.levels.vendor.onednn.primitive import Primitive
from golow.levels.vendor.onednn.steps import Tensor
from golow.lower.graph import Ref

Pair = tuple[int, int]


class Window(NamedTuple):
    """Algorithm, strides, kernel, dilations, padding before and after, as oneDNN takes them."""

    algorithm: int
    strides: Any
    kernel: Any
    dilations: Any
    before: Any
    after: Any


class Pooled(NamedTuple):
    """The result, and in training what oneDNN notes for the gradient of a maximum."""

    tensor: Tensor
    mask: Tensor | None


def window(
    algorithm: int, source: tuple[int, ...], target: tuple[int, ...], kernel: Pair, stride: Pair,
    padding: Pair, dilation: Pair = (1, 1),
) -> Window:  # fmt: skip
    """For an image and a result of these shapes."""
    reach = [d * (k - 1) + 1 for k, d in zip(kernel, dilation, strict=True)]
    # What the last window needs beyond the image, which ceil_mode makes more than the padding.
    after = [
        max(0, (out - 1) * step + size - image - before)
        for out, step, size, image, before in zip(
            target[2:], stride, reach, source[2:], padding, strict=True
        )
    ]
    holes = [d - 1 for d in dilation]
    return Window(algorithm, dims(stride), dims(kernel), dims(holes), dims(padding), dims(after))


def forward(build: Builder, x: Tensor, shape: tuple[int, ...], over: Window) -> Pooled:
    """A step from an image to a result of that shape, the current node's first."""
    primitive = _forward_primitive(build, x.layout, shape, over)
    result = build.new(build.output_name(), shape, primitive.descriptor(DST))
    writes = {DST: result}
    mask = primitive.descriptor(WORKSPACE)
    if mask.bytes:
        writes[WORKSPACE] = build.new(f"{build.output_name()}_mask", (mask.bytes,), mask)
    build.call(primitive, {SRC: x}, writes)
    return Pooled(result, writes.get(WORKSPACE))


def backward(
    build: Builder, gradient: Ref, shape: tuple[int, ...], layout: Descriptor, over: Window,
    mask: Tensor | None,
) -> None:  # fmt: skip
    """A step from a gradient to that of the image, which has this shape and layout: the current
    node's value."""
    forward = _forward_primitive(build, layout, build.value(gradient).shape, over)
    primitive = Primitive(
        build.engine, "pooling_backward", over.algorithm, layout, forward.descriptor(DST),
        *over[1:], forward.description,
    )  # fmt: skip
    reads = {DIFF_DST: build.wanted(gradient, primitive.descriptor(DIFF_DST))}
    if mask is not None:
        reads[WORKSPACE] = mask
    inner = build.new(build.output_name(), shape, primitive.descriptor(DIFF_SRC))
    build.call(primitive, reads, {DIFF_SRC: inner})
    build.define(0, inner)


def _forward_primitive(
    build: Builder, source: Descriptor, shape: tuple[int, ...], over: Window
) -> Primitive:
    return Primitive(
        build.engine, "pooling_forward", build.forward, over.algorithm, source,
        Descriptor.tagged(shape), *over[1:],
    )  # fmt: skip
