"""Grouped GEMMs: keeps products of groups of rows whole, for a level that reads where a group ends
while it runs; what they unfold to otherwise multiplies every row by the matrices of all groups."""

from __future__ import annotations

from collections.abc import Iterator
from typing import cast

from golow.lower.aten.canonical import operator_of
from golow.lower.ir.graph import Graph, Node, Pass, Ref
from golow.lower.ir.operator import written
from golow.lower.ir.rewriting import Links, rewritten
from golow.lower.operators.grouped_product import GroupedProduct, GroupedSums
from golow.lower.operators.permute import Permute

NAMES = {
    "transformers.grouped_mm_fallback.default": ("input", "weight", "offs"),
    "transformers.grouped_mm_fallback_backward.default": ("input", "weight", "offs", "grad_output"),
}


def keep_grouped_products(step: int = 1) -> Pass:
    """The pass that writes products of groups of rows, as models from transformers call them, and
    their gradients as operators. step: of which the sizes of the matrices must be multiples."""

    def keep(graph: Graph) -> Graph:
        links = Links(graph)
        replaced = {
            position: tuple(_written(node, links))
            for position, node in enumerate(graph.nodes)
            if node.op in NAMES and _fits(node, links, step)
        }
        return rewritten(graph, replaced)

    return keep


def _fits(node: Node, links: Links, step: int) -> bool:
    _, weight, ends, *_ = _operands(node)
    sizes = links.values[weight.name].shape[1:]
    whole = links.values[ends.name].dtype == "int32"
    return whole and not any(size % step for size in sizes)


def _written(node: Node, links: Links) -> Iterator[Node]:
    """The product, or those of its gradients that are read."""
    x, weight, ends, *gradients = _operands(node)
    other = _turned(weight, links)
    if not gradients:
        turned = other is not None
        yield written(node, GroupedProduct(x=x, weight=other or weight, ends=ends, turned=turned))
        return
    [gradient] = gradients
    turned = other is None
    of_x = GroupedProduct(x=gradient, weight=other or weight, ends=ends, turned=turned)
    of_weight = GroupedSums(x=x, gradient=gradient, ends=ends)
    for index, (operator, value) in enumerate(zip((of_x, of_weight), node.outputs, strict=True)):
        if value is not None:
            yield written(node, operator, name=f"{node.name}.{index}", outputs=(value,))


def _turned(value: Ref, links: Links) -> Ref | None:
    """Value whose transpose a matrix, or each of several, is; None if there is none."""
    position = links.maker.get(value.name)
    maker = None if position is None else operator_of(links.nodes[position], links)
    if not isinstance(maker, Permute):
        return None
    axes = len(maker.order)
    return maker.x if maker.order == (*range(axes - 2), axes - 1, axes - 2) else None


def _operands(node: Node) -> list[Ref]:
    """The call's tensors, in the order of their names."""
    names = NAMES[node.op]
    named = dict(zip(names, node.arguments, strict=False)) | dict(node.keywords)
    return [cast("Ref", named[name]) for name in names]  # all are, by the call's schema
