"""Steps over the windows of an image or a volume, shared by all kinds of pooling."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from golow.levels.direct.onednn.bindings.constants import DIFF_DST, DIFF_SRC, DST, SRC, WORKSPACE
from golow.levels.direct.onednn.bindings.library import Descriptor, dims
from golow.levels.direct.onednn.bindings.primitive import Primitive
from golow.levels.direct.onednn.steps.built_plan import Tensor
from golow.lower.ir.graph import Ref

if TYPE_CHECKING:
    from golow.levels.direct.onednn.build.builder import Builder

Sizes = tuple[int, ...]


class Window(NamedTuple):
    """Algorithm, strides, kernel, dilations, padding before and after, as oneDNN takes them."""

    algorithm: int
    strides: Any
    kernel: Any
    dilations: Any
    before: Any
    after: Any


class Pooled(NamedTuple):
    """The result, and in training the mask that oneDNN needs for the gradient of a maximum."""

    tensor: Tensor
    mask: Tensor | None


def window(
    algorithm: int, source: tuple[int, ...], target: tuple[int, ...], kernel: Sizes, stride: Sizes,
    padding: Sizes, dilation: Sizes = (),
) -> Window:  # fmt: skip
    """Return the window for an image and a result of these shapes. dilation: by default none."""
    dilation = dilation or (1,) * len(kernel)
    reach = [d * (k - 1) + 1 for k, d in zip(kernel, dilation, strict=True)]
    # Extent of the last window beyond the image; with ceil_mode, this can exceed the padding.
    after = [
        max(0, (out - 1) * step + size - image - before)
        for out, step, size, image, before in zip(
            target[2:], stride, reach, source[2:], padding, strict=True
        )
    ]
    holes = [d - 1 for d in dilation]
    return Window(algorithm, dims(stride), dims(kernel), dims(holes), dims(padding), dims(after))


def forward(build: Builder, x: Tensor, shape: tuple[int, ...], over: Window) -> Pooled:
    """Add a step from an image to a result of that shape, the current node's first value."""
    primitive = _forward_primitive(build, x.layout, shape, over, x.dtype)
    result = build.memory.new(
        build.current.output_name(), shape, primitive.descriptor(DST), x.dtype
    )
    writes = {DST: result}
    mask = primitive.descriptor(WORKSPACE)
    if mask.bytes:
        writes[WORKSPACE] = build.memory.new(
            f"{build.current.output_name()}_mask", (mask.bytes,), mask
        )
    build.steps.call(primitive, {SRC: x}, writes)
    return Pooled(result, writes.get(WORKSPACE))


def backward(
    build: Builder, gradient: Ref, shape: tuple[int, ...], layout: Descriptor, over: Window,
    mask: Tensor | None, scaled: Tensor | None = None,
) -> None:  # fmt: skip
    """Add a step from a gradient to the gradient of the image, which has this shape and layout. It
    is the current node's value. scaled: read instead of the gradient."""
    hint = _forward_primitive(build, layout, build.current.value(gradient).shape, over)
    primitive = Primitive(
        build.engine, "pooling_backward", over.algorithm, layout, hint.descriptor(DST),
        *over[1:], hint.description,
    )  # fmt: skip
    wanted = primitive.descriptor(DIFF_DST)
    if scaled is None:
        reads = {DIFF_DST: build.values.wanted(gradient, wanted)}
    else:
        reads = {
            DIFF_DST: scaled if scaled.layout == wanted else build.values.reordered(scaled, wanted)
        }
    if mask is not None:
        reads[WORKSPACE] = mask
    inner = build.memory.new(build.current.output_name(), shape, primitive.descriptor(DIFF_SRC))
    build.steps.call(primitive, reads, {DIFF_SRC: inner})
    build.values.define(0, inner)


def _forward_primitive(
    build: Builder,
    source: Descriptor,
    shape: tuple[int, ...],
    over: Window,
    dtype: str = "float32",
) -> Primitive:
    return Primitive(
        build.engine, "pooling_forward", build.forward_kind, over.algorithm, source,
        Descriptor.tagged(shape, dtype=dtype), *over[1:],
    )  # fmt: skip
