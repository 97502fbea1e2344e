"""Views, concatenation, sums over axes and dropout."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from golow.levels.onednn.builder import Builder, Operator
from golow.levels.onednn.library import (
    DST,
    MULTIPLE_SRC,
    REDUCTION_MEAN,
    REDUCTION_SUM,
    SRC,
    Descriptor,
    OneDnnError,
    Primitive,
    array,
    number,
)
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
    """Sum or mean over axes."""
    x, axes, _ = given(node, "self dim keepdim", False)
    source, output = build.tensor(x), node.outputs[0]
    assert output is not None  # noqa: S101
    rank = len(source.shape)
    chosen = axes if isinstance(axes, tuple) else (axes,)
    reduced = {int(a) % rank for a in chosen} or set(range(rank))  # type: ignore[arg-type]
    shape = tuple(1 if i in reduced else n for i, n in enumerate(source.shape))
    algorithm = REDUCTION_MEAN if "mean" in node.op else REDUCTION_SUM
    target = Descriptor.plain(shape)
    if shape == source.shape:
        build.define(0, build.plain(x)._replace(descriptor=Descriptor.plain(output.shape)))
        return
    primitive = Primitive(
        build.engine, "reduction", algorithm, source.layout, target, number(0.0), number(0.0)
    )
    result = build.new(output.name, output.shape, target)
    build.call(primitive, {SRC: source}, {DST: result})
    build.define(0, result._replace(descriptor=Descriptor.plain(output.shape)))


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
    mask = build.new(build.output_name(1), source.shape, dtype="bool")
    result = build.in_place_or_new(x, source)

    def run(x: Any, y: Any, mask: Any) -> None:
        if switches.dropout:
            drawn = switches.random.random(x.shape, dtype=np.float32)
            np.greater_equal(drawn, chance, out=mask)
            np.multiply(x, mask, out=y)
            y *= np.float32(1 / (1 - chance))
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
    "aten.mean.dim": reduce,
    "aten.expand.default": expand,
    "aten.ones.default": filled,
    "aten.zeros.default": filled,
    "aten.full.default": filled,
    "aten.native_dropout.default": dropout,
    "aten.native_dropout_backward.default": dropout_backward,
}
