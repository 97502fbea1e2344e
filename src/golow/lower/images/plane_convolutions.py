"""Convolutions of volumes as planes: computes them without copies of their planes, for a level
whose library has some of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Literal

import msgspec

from golow.lower.aten.decomposition import lenient
from golow.lower.images.planes import AXES, Chain
from golow.lower.images.volumes import convolutions, is_transposed, operator_of, through_transposed
from golow.lower.ir.graph import Graph, Node, Pass, Ref, Value
from golow.lower.ir.operator import Operator, written
from golow.lower.ir.rewriting import Names, rewritten
from golow.lower.ir.spelling import Call
from golow.lower.operators.convolution import Convolution, ConvolutionBackward

ALIGNED = 8  # channels; 16 bytes of 16-bit numbers
Layer = Convolution | ConvolutionBackward
View = Literal["planes", "columns"]


def convolve_side_by_side(whole: bool) -> Pass:
    """Return the pass that makes each convolution of volumes, and its gradients, one operator: of
    images where it computes each plane by itself, or each column of planes; else of volumes, if the
    level's library computes those (``whole``), without groups, of channels in multiples of
    `ALIGNED`; the model's input may have others. Where one does not fit, none is made: the planes
    of volumes are in another order where convolutions are unfolded."""

    def convolve_volumes(graph: Graph) -> Graph:
        graph = lenient(graph)
        names, values = Names(graph), graph.values()
        replaced: dict[int, tuple[Node, ...]] = {}
        for position, node, call in convolutions(graph):
            layer = operator_of(node, call)
            view = _view(call, layer) if isinstance(layer, Layer) else None
            if view is not None and isinstance(layer, Layer):
                replaced[position] = tuple(_of_images(node, layer, view, values, names))
            elif not whole or not _fits(graph, call):
                return graph
            elif layer is not None:
                replaced[position] = (written(node, layer),)
            elif is_transposed(node, call):
                replaced[position] = tuple(through_transposed(node, call, names))
            else:
                return graph
        return rewritten(graph, replaced) if replaced else graph

    return convolve_volumes


def _view(call: Call, layer: Layer) -> View | None:
    """As what the convolution sees volumes; None if neither a plane nor a column is alone."""
    kernel, ends = call.shape("weight")[2:], (layer.padding[:AXES], layer.padding[AXES:])
    sides = [tuple(axis) for axis in zip(*ends, strict=True)]
    alone = [
        (size, stride, both) == (1, 1, (0, 0))
        for size, stride, both in zip(kernel, layer.stride, sides, strict=True)
    ]
    if alone[0]:
        return "planes"
    return "columns" if alone[1] and alone[2] else None


def _fits(graph: Graph, call: Call) -> bool:
    filters, channels, *_ = call.shape("weight")
    given = {item.value.name for item in graph.inputs if item.kind == "input"}
    aligned = channels % ALIGNED == 0 or call.ref("input").name in given
    groups = call.integer("groups") if "groups" in call.names else 1
    return groups == 1 and filters % ALIGNED == 0 and aligned


def _of_images(
    node: Node, layer: Layer, view: View, values: Mapping[str, Value], names: Names
) -> Iterator[Node]:
    """Images of what the layer reads, the layer of images, and volumes of what it makes."""
    read: dict[str, Ref] = {}
    for field in ("x", "gradient", "weight"):
        reference = getattr(layer, field, None)
        if reference is None:
            continue
        chain = Chain(node, names, values[reference.name])
        if field == "weight":
            chain.reshape(*_of_weight(chain.last.shape, view))
        elif view == "planes":
            chain.to_planes(side_by_side=True)
        else:
            chain.to_columns(side_by_side=True)
        yield from chain.nodes
        read[field] = Ref(name=chain.last.name)
    made: list[Value | None] = []
    after: list[Node] = []
    for output, is_weight in zip(node.outputs, (False, True, False), strict=False):
        if output is None or len(output.shape) != AXES + 2:
            made.append(output)
            continue
        chain = Chain(node, names, output)
        count, channels, depth, height, width = shape = output.shape
        if is_weight:
            chain.last = chain.value(_of_weight(shape, view))
        elif view == "planes":
            chain.last = chain.value((count * depth, channels, height, width))
        else:
            chain.last = chain.value((count, channels, depth, height * width))
        made.append(chain.last)
        if is_weight or view == "columns":
            chain.reshape(*shape)
        else:
            chain.to_volumes(count, side_by_side=True)
        after += chain.end(output)
    operator = _seen(layer, view, read)
    yield written(node, operator, name=names.free(f"{node.name}.{view}"), outputs=tuple(made))
    yield from after


def _of_weight(shape: tuple[int, ...], view: View) -> tuple[int, ...]:
    filters, channels, depth, height, width = shape
    return (filters, channels, *((height, width) if view == "planes" else (depth, 1)))


def _seen(layer: Layer, view: View, read: Mapping[str, Ref]) -> Operator:
    """The layer over the two axes of images."""

    def part(sizes: tuple[int, ...], alone: int) -> tuple[int, ...]:
        return sizes[1:] if view == "planes" else (sizes[0], alone)

    padding = (*part(layer.padding[:AXES], 0), *part(layer.padding[AXES:], 0))
    return msgspec.structs.replace(
        layer, **read, stride=part(layer.stride, 1), padding=padding,
        dilation=part(layer.dilation, 1),
    )  # fmt: skip
