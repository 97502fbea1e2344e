"""Views, concatenation, sums over axes and dropout."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from golow.levels.vendor.onednn.builder import Builder, Operator
from golow.levels.vendor.onednn.constants import (
    DST,
    MULTIPLE_SRC,
    REDUCTION_MEAN,
    REDUCTION_SUM,
    SRC,
)
from golow.levels.vendor.onednn.library import Descriptor, OneDnnError, array, number
from golow.levels.vendor.onednn.primitive import Primitive
from golow.lower.graph import Node
from golow.lower.rewriting import given


def reshape(build: Builder, node: Node) -> None:
    """The same elements under another shape; row-major first where the layout forbids it."""
    tensor, output = build.tensor(node.arguments[0]), node.outputs[0]
    assert output is not None  # noqa: S101
    if tensor.descriptor is None:
        build.define(0, tensor)
        return
    try:
        view = tensor.layout.reshaped(output.shape)
    except OneDnnError:
        tensor = build.plain(node.arguments[0])
        view = Descriptor.plain(output.shape)
    build.define(0, tensor._replace(descriptor=view))


def transpose(build: Builder, node: Node) -> None:
    """A view with the axes in another order."""
    tensor = build.tensor(node.arguments[0])
    axes = list(range(len(tensor.shape)))
    if node.op == "aten.permute.default":
        order = [int(a) % len(axes) for a in node.arguments[1]]  # type: ignore[union-attr, arg-type]
    else:
        one, other = node.arguments[1:3] if len(node.arguments) == 3 else (0, 1)
        order = axes
        first, second = int(one) % len(axes), int(other) % len(axes)  # type: ignore[arg-type]
        order[first], order[second] = order[second], order[first]
    if tensor.layout.blocks:
        tensor = build.plain(node.arguments[0])
    build.define(0, tensor._replace(descriptor=tensor.layout.permuted(order)))


def concatenate(build: Builder, node: Node) -> None:
    """Tensors one after another along an axis, in the layout of the first."""
    parts, axis = given(node, "tensors dim", 0)
    output = node.outputs[0]
    assert isinstance(parts, tuple) and output is not None  # noqa: S101
    sources = [build.tensor(part) for part in parts]
    if any(source.layout.blocks for source in sources):
        sources = [build.plain(part) for part in parts]
    layouts = [source.layout for source in sources]
    place = int(axis) % len(output.shape)  # type: ignore[arg-type]
    target = Descriptor.tagged(output.shape)
    primitive = Primitive(build.engine, "concat", target, len(layouts), place, array(layouts))
    result = build.new(output.name, output.shape, primitive.descriptor(DST))
    reads = {MULTIPLE_SRC + index: source for index, source in enumerate(sources)}
    build.call(primitive, reads, {DST: result})
    build.define(0, result)


def reduce(build: Builder, node: Node) -> None:
    """Sum or mean over axes, over all where none is named."""
    x, axes, _ = given(node, "self dim keepdim", (), False)
    source, output = build.tensor(x), node.outputs[0]
    assert output is not None  # noqa: S101
    rank = len(source.shape)
    chosen = axes if isinstance(axes, tuple) else () if axes is None else (axes,)
    reduced = {int(a) % rank for a in chosen} or set(range(rank))  # type: ignore[arg-type]
    shape = tuple(1 if i in reduced else n for i, n in enumerate(source.shape))
    algorithm = REDUCTION_MEAN if "mean" in node.op else REDUCTION_SUM
    target = Descriptor.plain(shape)
    if shape == source.shape:
        # A copy, because nothing tells the builder that this operation may be a view.
        primitive = Primitive(build.engine, "reorder", source.layout, target)
    else:
        primitive = Primitive(
            build.engine, "reduction", algorithm, source.layout, target, number(0.0), number(0.0)
        )
    result = build.new(output.name, output.shape, target)
    build.call(primitive, {SRC: source}, {DST: result})
    build.define(0, result._replace(descriptor=Descriptor.plain(output.shape)))


def sliced(build: Builder, node: Node) -> None:
    """A copy of a range along an axis; oneDNN takes the part where it lies."""
    x, axis, start, _, step = given(node, "self dim start end step", 0, None, None, 1)
    output = node.outputs[0]
    assert output is not None  # noqa: S101
    source = build.tensor(x)
    if source.descriptor is None or step != 1:
        raise build.unsupported(f"{node.op} of {output.dtype} or with a step")
    if source.layout.blocks:
        source = build.plain(x)
    offsets = [0] * len(source.shape)
    place = int(axis) % len(source.shape)  # type: ignore[arg-type]
    offsets[place] = range(source.shape[place])[slice(start, None)].start  # type: ignore[arg-type]
    part = source.layout.part(output.shape, offsets)
    target = _dense(output.shape, source.layout.strides)
    result = build.new(output.name, output.shape, target)
    build.call(Primitive(build.engine, "reorder", part, target), {
        SRC: source._replace(descriptor=part)
    }, {DST: result})  # fmt: skip
    build.define(0, result)


def _dense(shape: tuple[int, ...], strides: tuple[int, ...]) -> Descriptor:
    """Without gaps, the axes in the order that these strides give."""
    found, step = [0] * len(shape), 1
    for axis in sorted(range(len(shape)), key=lambda i: (strides[i], -i)):
        found[axis] = step
        step *= shape[axis]
    return Descriptor.strided(shape, found)


def padded(build: Builder, node: Node) -> None:
    """x with a number around it; where the padding is negative x is cut."""
    x, sides, value = given(node, "self pad value", 0)
    source, output = build.plain(x), node.outputs[0]
    assert output is not None and isinstance(sides, tuple)  # noqa: S101
    if source.descriptor is None:
        raise build.unsupported(f"{node.op} of {output.dtype}")
    result = build.new(output.name, output.shape, Descriptor.plain(output.shape))
    before = [0] * len(output.shape)
    for index, amount in enumerate(sides[::2]):
        before[-1 - index] = int(amount)  # type: ignore[arg-type]
    inner, outer = [], []
    for first, old, new in zip(before, source.shape, output.shape, strict=True):
        inner.append(slice(max(0, -first), min(old, new - first)))
        outer.append(slice(max(0, first), min(new, first + old)))
    number_around, inside, outside = value, tuple(inner), tuple(outer)

    def run(x: Any, y: Any) -> None:
        y[...] = number_around
        y[outside] = x[inside]

    build.array_call(run, [source], [result])
    build.define(0, result)


def expand(build: Builder, node: Node) -> None:
    """A copy that repeats along axes of one element."""
    source, output = build.plain(node.arguments[0]), node.outputs[0]
    assert output is not None  # noqa: S101
    if output.dtype != "float32":
        raise build.unsupported(f"expand of {output.dtype}")
    result = build.new(output.name, output.shape, Descriptor.plain(output.shape))

    def run(x: Any, y: Any) -> None:
        y[...] = x

    build.array_call(run, [source], [result])
    build.define(0, result)


def filled(build: Builder, node: Node) -> None:
    """A tensor of one number."""
    output = node.outputs[0]
    assert output is not None  # noqa: S101
    if output.dtype != "float32" or math.prod(output.shape) > 1_000_000:
        raise build.unsupported(f"{node.op} of {output}")
    value = {"ones": 1.0, "zeros": 0.0}.get(node.op.split(".")[1])
    number_given = float(node.arguments[1]) if value is None else value  # type: ignore[arg-type]
    build.define(0, build.constant(output.name, np.full(output.shape, number_given)))


def dropout(build: Builder, node: Node) -> None:
    """x with elements set to zero at random and the others scaled up, and the mask."""
    x, probability, train = node.arguments
    if train is not True:
        raise build.unsupported("dropout that is switched off")
    source, switches = build.plain(x), build.switches
    chance = np.float32(probability)  # type: ignore[arg-type]
    factor = np.float32(1 / (1 - chance) if chance < 1 else 0)
    mask = build.new(build.output_name(1), source.shape, dtype="bool")
    result = build.in_place_or_new(x, source)

    def run(x: Any, y: Any, mask: Any) -> None:
        if switches.dropout:
            drawn = switches.random.random(x.shape, dtype=np.float32)
            np.greater_equal(drawn, chance, out=mask)
            np.multiply(x, mask, out=y)
            y *= factor
        else:
            mask[...] = True
            y[...] = x

    build.array_call(run, [source], [result, mask])
    build.define(0, result)
    build.define(1, mask)


def dropout_backward(build: Builder, node: Node) -> None:
    """The gradient where the mask let the value through, scaled as the value was."""
    gradient, mask, scale = node.arguments
    outer, switches = build.plain(gradient), build.switches
    factor = np.float32(scale)  # type: ignore[arg-type]
    result = build.in_place_or_new(gradient, outer)

    def run(gradient: Any, mask: Any, result: Any) -> None:
        np.multiply(gradient, mask, out=result)
        if switches.dropout:
            result *= factor

    build.array_call(run, [outer, build.tensor(mask)], [result])
    build.define(0, result)


OPERATORS: dict[str, Operator] = {
    **{
        f"aten.{name}": reshape
        for name in "view.default reshape.default flatten.using_ints squeeze.dim "
        "unsqueeze.default _unsafe_view.default".split()
    },
    "aten.t.default": transpose,
    "aten.transpose.int": transpose,
    "aten.permute.default": transpose,
    "aten.cat.default": concatenate,
    "aten.sum.dim_IntList": reduce,
    "aten.sum.default": reduce,
    "aten.mean.dim": reduce,
    "aten.slice.Tensor": sliced,
    "aten.constant_pad_nd.default": padded,
    "aten.expand.default": expand,
    "aten.ones.default": filled,
    "aten.zeros.default": filled,
    "aten.full.default": filled,
    "aten.native_dropout.default": dropout,
    "aten.native_dropout_backward.default": dropout_backward,
}
