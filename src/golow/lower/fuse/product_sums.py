"""Sums within products: a product of matrices adds the other term of a sum to its result, so that
neither is written and read again for the sum. In training these are the sums with a block's input,
forward, and those of gradients of a value that several layers read."""

from __future__ import annotations

from collections.abc import Container
from typing import NamedTuple

import msgspec

from golow.lower.fuse.pointwise_fusion import KINDS
from golow.lower.ir.clean_up import eliminate_dead_code
from golow.lower.ir.graph import Graph, Node, Ref, Value
from golow.lower.ir.operator import record_of, written
from golow.lower.ir.rewriting import Links, Names, absorbing, rewritten
from golow.lower.operators.binary import Binary
from golow.lower.operators.linear import Linear
from golow.lower.operators.matrix_product import MatrixProduct
from golow.lower.operators.reshape import Reshape


class _Term(NamedTuple):
    """A term that a product makes, through reshapes, for the sum alone. position: of the product;
    others: of the reshapes."""

    position: int
    others: tuple[int, ...]
    product: Linear | MatrixProduct


def add_within_products(graph: Graph) -> Graph:
    """Let a product of two matrices, or a linear layer, add what is added to its result, if nothing
    else reads that. It then runs where the sum was computed: of two products, the later one."""
    links, names = Links(graph), Names(graph)
    replaced: dict[int, tuple[Node, ...]] = {}
    for position, node in enumerate(graph.nodes):
        add = Binary.of(node)
        found = _term(links, node, add, replaced) if add is not None else None
        if found is not None:
            term, other = found
            replaced |= dict.fromkeys((term.position, *term.others), ())
            replaced[position] = _sum(links, node, term, other, names)
    return eliminate_dead_code(rewritten(graph, replaced)) if replaced else graph


def _term(
    links: Links, node: Node, add: Binary, taken: dict[int, tuple[Node, ...]]
) -> tuple[_Term, Ref] | None:
    """The later of the terms that products make, and the other term."""
    if add.function != "add" or add.activation is not None or not isinstance(add.b, Ref):
        return None
    shapes = {links.values[ref.name].shape for ref in (add.a, add.b)}
    if add.a == add.b or len(shapes) > 1 or node.outputs[0] is None:
        return None
    pairs = ((add.a, add.b), (add.b, add.a))
    found = [(_made(links, one.name, node.phase), other) for one, other in pairs]
    known = [
        (term, other)
        for term, other in found
        if term and term.position not in taken and in_memory(links, other.name, taken)
    ]
    return max(known, key=lambda pair: pair[0].position, default=None)


def in_memory(links: Links, name: str, taken: Container[int] = ()) -> bool:
    """True if the value is written in any case: it is not a function of elements that others alone
    read, which are one pass over memory with the sum. taken: sums that products compute now."""
    maker = links.maker.get(name)
    if maker is None or maker in taken:
        return True
    node = links.nodes[maker]
    view = Reshape.of(node)
    if view is not None:
        return in_memory(links, view.x.name, taken)
    readers = (links.nodes[position].op for position in links.readers[name])
    return node.op not in KINDS or not all(op in KINDS for op in readers)


def _made(links: Links, name: str, phase: str) -> _Term | None:
    views: list[int] = []
    while links.only_reader(name) is not None:
        maker = links.maker.get(name)
        node = links.nodes[maker] if maker is not None else None
        record = record_of(node) if node is not None else None
        if maker is None or node is None or node.phase != phase:
            return None
        if isinstance(record, Reshape):
            views.append(maker)
            name = record.x.name
        elif isinstance(record, Linear | MatrixProduct) and _takes_sums(links, node, record):
            return _Term(maker, tuple(views), record)
        else:
            return None
    return None


def _takes_sums(links: Links, node: Node, record: Linear | MatrixProduct) -> bool:
    if isinstance(record, Linear):
        return record.residual is None and record.activation is None
    (output,) = node.outputs
    return record.added is None and output is not None and len(output.shape) == 2


def _sum(links: Links, add: Node, term: _Term, other: Ref, names: Names) -> tuple[Node, ...]:
    """The product, which adds the other term, at the place of the sum."""
    whole, product = add.outputs[0], links.nodes[term.position]
    made = product.outputs[0]
    assert whole is not None and made is not None  # noqa: S101 - as _term states
    product = msgspec.structs.replace(product, absorbed=absorbing(product, add))
    before: tuple[Node, ...] = ()
    if whole.shape != made.shape:
        rows = _like(made, names.free(f"{made.name}_added"))
        before = (_view(add, other, rows),)
        other = Ref(name=rows.name)
    field = "residual" if isinstance(term.product, Linear) else "added"
    operator = msgspec.structs.replace(term.product, **{field: other})
    if whole.shape == made.shape:
        return (*before, written(product, operator, outputs=(whole,)))
    sums = _like(made, names.free(f"{made.name}_sum"))
    return (
        *before,
        written(product, operator, outputs=(sums,)),
        _view(add, Ref(name=sums.name), whole),
    )


def _like(value: Value, name: str) -> Value:
    return msgspec.structs.replace(value, name=name)


def _view(beside: Node, of: Ref, value: Value) -> Node:
    inner = msgspec.structs.replace(beside, absorbed=())
    return written(inner, Reshape(x=of, shape=value.shape), name=value.name, outputs=(value,))
