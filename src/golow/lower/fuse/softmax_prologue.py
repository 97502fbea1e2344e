"""Prologue fusion of softmax: computes functions of elements within the softmax that reads them, so
that scores of attention with their masks and biases are read once and never written."""

from __future__ import annotations

import math

import msgspec

from golow.lower.fuse.pointwise_fusion import KINDS
from golow.lower.ir.graph import Graph, Node, Ref, Value
from golow.lower.ir.operator import is_view, written
from golow.lower.ir.rewriting import Links, absorbing, result, rewritten, with_names
from golow.lower.operators.activation import Activate
from golow.lower.operators.binary import Binary
from golow.lower.operators.convolution import Convolution
from golow.lower.operators.dropout import Dropout
from golow.lower.operators.fused import Fused
from golow.lower.operators.fused_softmax import FusedSoftmax
from golow.lower.operators.linear import Linear
from golow.lower.operators.matrix_product import MatrixProduct
from golow.lower.operators.pointwise import Pointwise
from golow.lower.operators.reshape import Reshape
from golow.lower.operators.softmax import Softmax, SoftmaxBackward

MOST_COLUMNS = 1024  # a row that a warp holds in its registers
# Functions that do not depend on which axis is which.
ANYWHERE = {kind.op() for kind in (Activate, Binary, Pointwise)}
# Operators that take all operands in the type in which they multiply.
PRODUCTS = {kind.op() for kind in (Convolution, Linear, MatrixProduct)}


def move_reshapes(graph: Graph) -> Graph:
    """Move a reshape that keeps the last axes from between functions of elements to before them,
    and from before a softmax of functions to after it, so that both can be computed together."""
    links = Links(graph)
    replaced: dict[int, tuple[Node, ...]] = {}
    for position, node in enumerate(graph.nodes):
        layer = Reshape.of(node)
        if layer is None or links.only_reader(layer.x.name) != position:
            continue
        maker = links.made_by(layer.x, *ANYWHERE)
        if maker is None or maker in replaced:
            continue
        reader = links.only_reader(result(node))
        softmax = None if reader is None else Softmax.of(graph.nodes[reader])
        if softmax is not None and reader is not None:
            replaced |= _softmax_first(links, position, reader, softmax)
        elif _is_read_by_functions(links, node):
            replaced |= _reshape_first(links, maker, position)
    return rewritten(graph, replaced)


def _is_read_by_functions(links: Links, node: Node) -> bool:
    [output] = node.outputs
    readers = links.readers[output.name] if output is not None else []
    kept = output is not None and output.name in links.returned
    return bool(readers) and not kept and all(links.nodes[r].op in KINDS for r in readers)


def _softmax_first(
    links: Links, position: int, reader: int, softmax: Softmax
) -> dict[int, tuple[Node, ...]]:
    """softmax(reshape(x)) as reshape(softmax(x))."""
    reshape, node = links.nodes[position], links.nodes[reader]
    layer, [turned], [output] = Reshape.of(reshape), reshape.outputs, node.outputs
    assert layer is not None and turned is not None  # noqa: S101 - as the caller found
    before = links.values[layer.x.name].shape
    last = softmax.axis == len(turned.shape) - 1 and before[-1:] == turned.shape[-1:]
    if output is None or not last:
        return {}
    inner = Value(name=turned.name, shape=before, dtype=output.dtype)
    first = msgspec.structs.replace(softmax, x=layer.x, axis=len(before) - 1)
    then = Reshape(x=Ref(name=inner.name), shape=output.shape)
    return {
        position: (),
        reader: (
            written(node, first, outputs=(inner,)),
            written(reshape, then, outputs=(output,)),
        ),
    }


def _reshape_first(links: Links, maker: int, position: int) -> dict[int, tuple[Node, ...]]:
    """reshape(function(x, ...)) as function(reshape(x), ...), where what else it reads is repeated
    along the axes that change."""
    node, reshape = links.nodes[maker], links.nodes[position]
    [old], [new] = node.outputs, reshape.outputs
    assert old is not None and new is not None  # noqa: S101 - one reads the other
    kept = _kept(old.shape, new.shape)
    names: dict[str, str] = {}
    turned: list[Node] = []
    for name in dict.fromkeys(node.references()):
        value = links.values[name]
        if value.shape == old.shape:
            names[name] = f"{new.name}_of_{name}"
            output = Value(name=names[name], shape=new.shape, dtype=value.dtype)
            operator = Reshape(x=Ref(name=name), shape=new.shape)
            turned.append(written(reshape, operator, outputs=(output,)))
        elif len(value.shape) > len(new.shape) or math.prod(value.shape[: -kept or None]) != 1:
            return {}
    if not turned:
        return {}
    function = msgspec.structs.replace(with_names(node, names), outputs=(new,))
    return {maker: (*turned, function), position: ()}


def _kept(one: tuple[int, ...], other: tuple[int, ...]) -> int:
    """How many of the last axes are the same."""
    count = 0
    while count < min(len(one), len(other)) and one[-1 - count] == other[-1 - count]:
        count += 1
    return count


def compute_within_softmax(graph: Graph) -> Graph:
    """Put a group of functions into the softmax over the last axis that alone reads its result. It
    takes the group's place, before which nothing changes what the group reads."""
    links = Links(graph)
    replaced: dict[int, tuple[Node, ...]] = {}
    for position, node in enumerate(graph.nodes):
        softmax, output = Softmax.of(node), node.outputs[0] if node.outputs else None
        maker = None if softmax is None else links.made_by(softmax.x, Fused.op())
        if softmax is None or output is None or maker is None:
            continue
        group = Fused.of(graph.nodes[maker])
        alone = links.only_reader(softmax.x.name) == position
        fits = softmax.axis == len(output.shape) - 1 and output.shape[-1] <= MOST_COLUMNS
        if group is None or len(group.yields) > 1 or not (alone and fits):
            continue
        one = FusedSoftmax(
            inputs=group.inputs,
            program=group.program,
            log=softmax.log,
            rounded=only_products_read(links, output.name),
        )
        absorbed = absorbing(node, graph.nodes[maker])
        replaced |= {maker: (written(node, one, absorbed=absorbed),), position: ()}
    return rewritten(graph, replaced)


def only_products_read(links: Links, name: str) -> bool:
    """True if all that read the value, a view of it, or what dropout leaves of it, are products,
    layers and convolutions, and perhaps the gradient of softmax, which then has the weights that
    they had."""
    readers = [links.nodes[reader] for reader in links.readers[name]]
    passed = [node for node in readers if is_view(node) or node.op == Dropout.op()]
    others = {node.op for node in readers if node not in passed}
    products = name not in links.returned and others <= {*PRODUCTS, SoftmaxBackward.op()}
    return (
        products
        and all(only_products_read(links, result(node)) for node in passed)
        and bool(passed or PRODUCTS & others)
    )
