"""Gradients of means over whole images, where functions of elements alone read them, as in the
backward pass of squeeze and excitation: they are read at their one pixel, and never written at all
pixels."""

from __future__ import annotations

import msgspec

from golow.lower.fuse.pointwise_fusion import KINDS
from golow.lower.ir.graph import Graph, Node, Ref
from golow.lower.ir.operator import written
from golow.lower.ir.rewriting import Links, Names, result, rewritten
from golow.lower.operators.adaptive_average_pool import AdaptiveAveragePoolBackward
from golow.lower.operators.binary import Binary
from golow.lower.operators.expand import Expand


def spread_within_functions(graph: Graph) -> Graph:
    """Make the gradient of a mean over whole images a view of its one pixel, divided by the number
    of pixels, where functions of elements alone read it."""
    links, names = Links(graph), Names(graph)
    replaced: dict[int, tuple[Node, ...]] = {}
    for position, node in enumerate(graph.nodes):
        pool = AdaptiveAveragePoolBackward.of(node)
        if pool is None or links.values[pool.gradient.name].shape[2:] != (1, 1):
            continue
        name = result(node)
        readers = {links.nodes[reader].op for reader in links.readers[name]}
        if name not in links.returned and readers and readers <= KINDS:
            replaced[position] = _spread(node, pool, names)
    return rewritten(graph, replaced) if replaced else graph


def _spread(node: Node, pool: AdaptiveAveragePoolBackward, names: Names) -> tuple[Node, ...]:
    (output,) = node.outputs
    assert output is not None  # noqa: S101 - something reads it
    height, width = pool.shape[2:]
    pixels = msgspec.structs.replace(output, name=names.free(f"{output.name}_pixels"))
    view = Expand(x=pool.gradient, shape=pool.shape)
    share = Binary(function="divide", a=Ref(name=pixels.name), b=height * width)
    first = msgspec.structs.replace(node, absorbed=())
    return (
        written(first, view, name=pixels.name, outputs=(pixels,)),
        written(node, share),
    )
