"""A pass that makes one matrix product of a batch of them, where the batch shares a matrix."""

from __future__ import annotations

import math

import msgspec

from golow.lower.graph import Graph, Node, Ref, Value
from golow.lower.operator import record_of, written
from golow.lower.operators.expand import Expand
from golow.lower.operators.matrix_product import MatrixProduct
from golow.lower.operators.reshape import Reshape
from golow.lower.rewriting import Links, result, rewritten


def join_rows(graph: Graph) -> Graph:
    """Multiply all rows of a batch [B, M, K] by a matrix [K, N] at once, where the graph repeats
    the matrix B times. PyTorch spells a product so if the batch is no contiguous tensor, as in an
    LSTM with ``batch_first``."""
    links = Links(graph)
    replaced: dict[int, tuple[Node, ...]] = {}
    for position, node in enumerate(graph.nodes):
        product = MatrixProduct.of(node)
        matrix = _repeated(links, product.b) if product is not None else None
        if product is not None and matrix is not None:
            replaced[position] = tuple(_at_once(links, node, product, matrix))
    return rewritten(graph, replaced)


def _repeated(links: Links, reference: Ref) -> Ref | None:
    """The matrix that this batch holds several times; None if it holds different ones."""
    batch, *matrix = links.values[reference.name].shape
    if len(matrix) != 2 or batch == 1:
        return None
    while math.prod(links.values[reference.name].shape) > math.prod(matrix):
        maker = links.maker.get(reference.name)
        view = record_of(links.nodes[maker]) if maker is not None else None
        if not isinstance(view, Reshape | Expand):
            return None
        reference = view.x
        if list(links.values[reference.name].shape[-2:]) != matrix:
            return None
    return reference


def _at_once(links: Links, node: Node, product: MatrixProduct, matrix: Ref) -> list[Node]:
    value = links.values[result(node)]
    batch, rows, columns = value.shape
    inner = links.values[product.a.name].shape[-1]

    def named(name: str, *shape: int) -> Value:
        return msgspec.structs.replace(value, name=f"{value.name}_{name}", shape=shape)

    a, b, joined = (
        named("rows", batch * rows, inner),
        named("matrix", inner, columns),
        named("joined", batch * rows, columns),
    )
    return [
        written(node, Reshape(x=product.a, shape=a.shape), outputs=(a,)),
        written(node, Reshape(x=matrix, shape=b.shape), outputs=(b,)),
        written(node, MatrixProduct(a=Ref(name=a.name), b=Ref(name=b.name)), outputs=(joined,)),
        written(node, Reshape(x=Ref(name=joined.name), shape=value.shape), outputs=(value,)),
    ]
