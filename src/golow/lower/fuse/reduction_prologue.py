"""Prologue fusion of sums and means: computes functions of elements within the sum that alone reads
them, as the gradient of a gate, which is a sum of products, so that they are never written."""

from __future__ import annotations

from golow.lower.ir.graph import Graph, Node
from golow.lower.ir.operator import record_of, written
from golow.lower.ir.rewriting import Links, absorbing, rewritten
from golow.lower.operators.adaptive_average_pool import AdaptiveAveragePool
from golow.lower.operators.fused import Fused
from golow.lower.operators.fused_reduce import FusedReduce
from golow.lower.operators.reduce import Reduce

PIXELS = (2, 3)  # of an image, whose channels are last in memory


def compute_within_sums(graph: Graph) -> Graph:
    """Put a group of functions into the sum or mean that alone reads its result, if its last axis
    in memory stays. It takes the group's place, before which nothing changes what the group
    reads."""
    links = Links(graph)
    replaced: dict[int, tuple[Node, ...]] = {}
    for position, node in enumerate(graph.nodes):
        total = _sum(node)
        maker = None if total is None else links.made_by(total.x, Fused.op())
        if total is None or maker is None or links.only_reader(total.x.name) != position:
            continue
        group = Fused.of(graph.nodes[maker])
        if group is None or len(group.yields) > 1 or not _fits(links, total, node):
            continue
        assert total.function in ("sum", "mean")  # noqa: S101 - as _sum states
        one = FusedReduce(
            inputs=group.inputs,
            program=group.program,
            function=total.function,
            axes=total.axes,
            keep=total.keep,
        )
        absorbed = absorbing(node, graph.nodes[maker])
        replaced |= {maker: (written(node, one, absorbed=absorbed),), position: ()}
    return rewritten(graph, replaced) if replaced else graph


def _sum(node: Node) -> Reduce | None:
    """The node as a sum or mean over axes, if it is one."""
    record = record_of(node)
    if isinstance(record, AdaptiveAveragePool) and record.size == (1, 1):
        return Reduce(function="mean", x=record.x, axes=PIXELS, keep=True)
    if isinstance(record, Reduce) and record.function in ("sum", "mean"):
        return record
    return None


def _fits(links: Links, total: Reduce, node: Node) -> bool:
    value, output = links.values[total.x.name], node.outputs[0]
    if output is None or {value.dtype, output.dtype} != {"float32"} or not total.axes:
        return False
    of_image = len(value.shape) == 4 and total.axes == PIXELS
    return of_image or len(value.shape) - 1 not in total.axes
