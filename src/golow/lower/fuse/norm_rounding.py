"""Norms write their results rounded to 8 bits, too: what a layer reads is then rounded in the pass
that makes it."""

from __future__ import annotations

import msgspec

from golow.lower.ir.graph import Graph, Node
from golow.lower.ir.operator import record_of, written
from golow.lower.ir.rewriting import Links, absorbing, result, rewritten
from golow.lower.operators.layer_norm import LayerNorm
from golow.lower.operators.quantize import E4M3, Quantize
from golow.lower.operators.rms_norm import RmsNorm


def round_within_norms(graph: Graph) -> Graph:
    """Fuse the rounding of a norm's result to e4m3 into the norm, which then writes the numbers
    beside its result, or in its place if nothing else reads that."""
    links, given = Links(graph), {item.value.name for item in graph.inputs}
    replaced: dict[int, tuple[Node, ...]] = {}
    for position, node in enumerate(graph.nodes):
        rounding = Quantize.of(node)
        if rounding is None or rounding.dtype != E4M3 or rounding.scale.name not in given:
            continue
        place = links.made_by(rounding.x, LayerNorm.op(), RmsNorm.op())
        if place is None or place in replaced or result(links.nodes[place]) != rounding.x.name:
            continue
        norm, (plain, *others) = record_of(links.nodes[place]), links.nodes[place].outputs
        assert isinstance(norm, LayerNorm | RmsNorm)  # noqa: S101 - as made_by states
        alone = links.only_reader(rounding.x.name) == position
        new = msgspec.structs.replace(norm, result_scale=rounding.scale, result_type=E4M3)
        outputs = (None if alone else plain, *others, node.outputs[0])
        absorbed = absorbing(links.nodes[place], node)
        replaced[place] = (written(links.nodes[place], new, outputs=outputs, absorbed=absorbed),)
        replaced[position] = ()
    return rewritten(graph, replaced)
