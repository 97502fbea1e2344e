"""The pass that keeps products of groups of rows whole, for a level that reads where a group ends
while it runs; what they unfold to otherwise multiplies every row by the matrices of all groups."""

from __future__ import annotations

from collections.abc import Callable

from golow.lower.canonical import operator_of
from golow.lower.graph import Argument, Graph, Node, Ref
from golow.lower.operator import written
from golow.lower.operators.grouped_product import GroupedProduct, GroupedSums
from golow.lower.operators.permute import Permute
from golow.lower.rewriting import Links, rewritten

FORWARD = {
    "transformers.grouped_mm_fallback.default": ("input", "weight", "offs"),
    "aten._grouped_mm.default": ("self", "mat2", "offs", "bias", "out_dtype"),
}
BACKWARD = "transformers.grouped_mm_fallback_backward.default"


def keep_grouped_products(step: int = 1) -> Callable[[Graph], Graph]:
    """The pass that writes products of groups of rows, and the gradients of transformers' own, as
    operators. step: of which the sizes of the matrices must be multiples."""

    def keep(graph: Graph) -> Graph:
        links = Links(graph)
        replaced: dict[int, tuple[Node, ...]] = {}
        for position, node in enumerate(graph.nodes):
            if node.op in FORWARD:
                product = _product(node, links, step)
                if product is not None:
                    replaced[position] = (written(node, product),)
            elif node.op == BACKWARD:
                replaced[position] = _gradients(node, links)
        return rewritten(graph, replaced)

    return keep


def _product(node: Node, links: Links, step: int) -> GroupedProduct | GroupedSums | None:
    """What a call is, if its rows are in groups, or the rows over which it sums."""
    given = _given(node, FORWARD[node.op])
    x, weight, ends, *rest = given.values()
    if not (isinstance(x, Ref) and isinstance(weight, Ref) and isinstance(ends, Ref)) or any(
        item is not None for item in rest
    ):
        return None
    shapes = [links.values[item.name].shape for item in (x, weight)]
    whole = links.values[ends.name].dtype == "int32"
    if not whole or any(size % step for size in shapes[1][-2:]):
        return None
    axes = [len(shape) for shape in shapes]
    if axes == [2, 2]:
        rows = _turned(x, links)
        return None if rows is None else GroupedSums(x=rows, gradient=weight, ends=ends)
    if axes != [2, 3]:
        return None
    other = _turned(weight, links)
    return GroupedProduct(x=x, weight=other or weight, ends=ends, turned=other is not None)


def _turned(value: Ref, links: Links) -> Ref | None:
    """What a matrix, or each of several, is the transpose of; None if it is none."""
    position = links.maker.get(value.name)
    maker = None if position is None else operator_of(links.nodes[position], links)
    if not isinstance(maker, Permute):
        return None
    axes = len(maker.order)
    return maker.x if maker.order == (*range(axes - 2), axes - 1, axes - 2) else None


def _gradients(node: Node, links: Links) -> tuple[Node, ...]:
    """Those of the call's operands that are read."""
    names = ("input", "weight", "offs", "grad_output")
    x, weight, ends, gradient = (_ref(item) for item in _given(node, names).values())
    other = _turned(weight, links)
    of_x = GroupedProduct(x=gradient, weight=other or weight, ends=ends, turned=other is None)
    of_weight = GroupedSums(x=x, gradient=gradient, ends=ends)
    return tuple(
        written(node, operator, name=f"{node.name}.{index}", outputs=(value,))
        for index, (operator, value) in enumerate(zip((of_x, of_weight), node.outputs, strict=True))
        if value is not None
    )


def _given(node: Node, names: tuple[str, ...]) -> dict[str, Argument]:
    """The call's arguments by name; None for those that it leaves out."""
    named = dict(zip(names, node.arguments, strict=False)) | dict(node.keywords)
    return {name: named.get(name) for name in names}


def _ref(given: Argument) -> Ref:
    assert isinstance(given, Ref)  # noqa: S101 - the library's schema says so
    return given
