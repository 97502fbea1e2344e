"""Peephole passes on matrix products: one product of a batch of them, where the batch shares a
matrix; and numbers that multiply an operand or the result."""

from __future__ import annotations

import math

import msgspec

from golow.lower.ir.graph import Graph, Node, Ref, Value
from golow.lower.ir.operator import record_of, written
from golow.lower.ir.rewriting import Links, result, rewritten
from golow.lower.operators.binary import Binary
from golow.lower.operators.expand import Expand
from golow.lower.operators.gather import Gather
from golow.lower.operators.matrix_product import MatrixProduct
from golow.lower.operators.permute import Permute
from golow.lower.operators.pointwise import Pointwise
from golow.lower.operators.reshape import Reshape


def join_rows(graph: Graph) -> Graph:
    """Multiply all rows of a batch [B, M, K] by a matrix [K, N] at once, where the graph repeats
    the matrix B times. PyTorch spells a product so if the batch is not a contiguous tensor, as in
    an LSTM with ``batch_first``."""
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


# ---------------------------------------------------------------- outer products


def multiply_outer_products(graph: Graph) -> Graph:
    """Make products of a column and a row functions of elements. No term is summed, so that tensor
    cores, which would round the factors, have nothing to give: angles of positions, which models
    compute so, need all digits."""
    values = graph.values()
    replaced: dict[int, tuple[Node, ...]] = {}
    for position, node in enumerate(graph.nodes):
        product = MatrixProduct.of(node)
        if product is None or product.factor != 1 or product.added is not None:
            continue
        if values[product.a.name].shape[-1] == 1:
            dtype = values[result(node)].dtype
            outer = Pointwise(function="multiply", operands=(product.a, product.b), dtype=dtype)
            replaced[position] = (written(node, outer),)
    return rewritten(graph, replaced)


# ---------------------------------------------------------------- scaled products


def scale_products(graph: Graph) -> Graph:
    """Let products multiply their results by the number that multiplies an operand or the result
    now, such as the scale of attention, where nothing but products reads what is scaled."""
    links = Links(graph)
    factors: dict[int, float] = {}
    gone: dict[str, str] = {}
    for node in graph.nodes:
        factor, source = _factor(node)
        if factor == 1:
            continue
        found = _products_of(links, result(node))
        before = _made_by(links, source)
        if not found and before is not None and _scales(links, before):
            found = [before]
        for position in found:
            factors[position] = factors.get(position, 1.0) * factor
        if found:
            gone[result(node)] = gone.get(source.name, source.name)
    replaced: dict[int, tuple[Node, ...]] = {links.maker[name]: () for name in gone}
    for position, factor in factors.items():
        node = graph.nodes[position]
        product = MatrixProduct.of(node)
        assert product is not None  # noqa: S101 - as _scales states
        scaled = msgspec.structs.replace(product, factor=product.factor * factor)
        replaced[position] = (written(node, scaled),)
    return rewritten(graph, replaced, gone)


def _scales(links: Links, position: int) -> bool:
    """True if the node is a product, and adds nothing that it would have to scale, too."""
    product = MatrixProduct.of(links.nodes[position])
    return product is not None and product.added is None


def _products_of(links: Links, name: str) -> list[int]:
    """The positions of the products that read the value, through what moves elements, one for each
    operand; empty if something else reads it."""
    if name in links.returned:
        return []
    found: list[int] = []
    for reader in links.readers[name]:
        if _moved(links, reader) == name:
            further = _products_of(links, result(links.nodes[reader]))
        else:
            operands = [ref == name for ref in links.nodes[reader].references()]
            further = [reader] * sum(operands) if _scales(links, reader) else []
        if not further:
            return []
        found += further
    return found


def read_through_views(links: Links, name: str) -> tuple[set[str], set[int]]:
    """The value with all its views, and the positions of the other nodes that read one of them."""
    names, readers, waiting = {name}, set[int](), [name]
    while waiting:
        for position in links.readers[waiting.pop()]:
            node = links.nodes[position]
            if isinstance(record_of(node), Reshape | Permute | Expand):
                names.add(result(node))
                waiting.append(result(node))
            else:
                readers.add(position)
    return names, readers


def _made_by(links: Links, reference: Ref) -> int | None:
    """The position of the node that makes the value, or whose elements are moved there; None if
    something else reads one of them, or if they are repeated: what scales them writes them so."""
    name = reference.name
    while links.only_reader(name) is not None:
        maker = links.maker.get(name)
        moved = _moved(links, maker) if maker is not None else None
        if maker is None or moved is None:
            return maker
        sizes = {math.prod(links.values[item].shape) for item in (name, moved)}
        if Expand.of(links.nodes[maker]) and len(sizes) > 1:
            return None
        name = moved
    return None


def _moved(links: Links, position: int) -> str | None:
    """The value whose elements this node moves, and changes no further."""
    record = record_of(links.nodes[position])
    return record.x.name if isinstance(record, Reshape | Permute | Expand | Gather) else None


def _factor(node: Node) -> tuple[float, Ref]:
    """The number by which a node multiplies a value, and that value; 1 for any other node."""
    operator = Binary.of(node)
    if operator is None or isinstance(operator.b, Ref) or operator.activation is not None:
        return 1.0, Ref(name="")
    number = float(operator.b)
    if operator.function == "multiply":
        return number, operator.a
    if operator.function == "divide" and number:
        return 1 / number, operator.a
    return 1.0, Ref(name="")
