"""L2 normalisation fusion: recognises vectors that are divided by their length, for a level that
has a kernel for it."""

from __future__ import annotations

from typing import NamedTuple

from golow.lower.ir.clean_up import eliminate_dead_code
from golow.lower.ir.graph import Graph, Node, Ref, Value
from golow.lower.ir.operator import written
from golow.lower.ir.rewriting import Links, absorbing, result, rewritten
from golow.lower.operators.binary import Binary
from golow.lower.operators.expand import Expand
from golow.lower.operators.pointwise import Pointwise
from golow.lower.operators.reduce import Reduce
from golow.lower.operators.reshape import Reshape
from golow.lower.operators.unit_norm import UnitNorm


def name_unit_norm(graph: Graph) -> Graph:
    """Make x / max(length of x, epsilon), over the last axis, one operator, with the factor of each
    head, in inference. As `nn.functional.normalize` and networks that write it themselves."""
    links = Links(graph)
    replaced: dict[int, tuple[Node, ...]] = {}
    for position, node in enumerate(graph.nodes):
        found = _found(links, node)
        if found is not None:
            last = _factor(links, position)
            end = position if last is None else last.position
            factor = None if last is None else last.factor
            operator = UnitNorm(x=found.x, factor=factor, epsilon=found.epsilon)
            absorbed = absorbing(node, links.nodes[end])
            replaced[position] = ()
            outputs = links.nodes[end].outputs
            replaced[end] = (written(node, operator, outputs=outputs, absorbed=absorbed),)
    return eliminate_dead_code(rewritten(graph, replaced)) if replaced else graph


class _Found(NamedTuple):
    x: Ref
    epsilon: float


class _Factor(NamedTuple):
    """position: of the product with it."""

    position: int
    factor: Ref


def _found(links: Links, node: Node) -> _Found | None:
    quotient = Binary.of(node)
    if quotient is None or quotient.function != "divide" or not isinstance(quotient.b, Ref):
        return None
    if quotient.activation is not None:
        return None
    length, epsilon = _made_by(links, quotient.b), 0.0
    if isinstance(length, Expand):
        length = _made_by(links, length.x)
    if isinstance(length, Pointwise) and length.function == "maximum":
        root, least = length.operands
        if not isinstance(root, Ref) or isinstance(least, Ref) or float(least) < 0:
            return None
        length, epsilon = _made_by(links, root), float(least)
    if not isinstance(length, Pointwise) or length.function != "square_root":
        return None
    total = _made_by(links, length.operands[0])
    if not isinstance(total, Reduce) or (total.function, total.keep) != ("sum", True):
        return None
    last = len(links.values[quotient.a.name].shape) - 1
    square = _made_by(links, total.x)
    if total.axes != (last,) or not _is_square(square, quotient.a):
        return None
    return _Found(quotient.a, epsilon)


def _made_by(links: Links, value: object) -> object:
    """The operator that makes a value which nothing else reads."""
    maker = links.maker.get(value.name) if isinstance(value, Ref) else None
    if not isinstance(value, Ref) or maker is None or links.only_reader(value.name) is None:
        return None
    node = links.nodes[maker]
    return next((found for kind in KINDS if (found := kind.of(node)) is not None), None)


KINDS = (Binary, Pointwise, Reduce, Expand)


def _is_square(made: object, x: Ref) -> bool:
    if isinstance(made, Pointwise):
        return made.function == "power" and made.operands == (x, 2)
    return made == Binary(function="multiply", a=x, b=x)


def _factor(links: Links, position: int) -> _Factor | None:
    """The product of the vectors with a factor for each index of one axis, if nothing else reads
    them."""
    value = _value(links, position)
    name, reader = value.name, links.only_reader(value.name)
    while reader is not None and _is_same(links, reader, value.shape):
        name = result(links.nodes[reader])
        reader = links.only_reader(name)
    product = None if reader is None else Binary.of(links.nodes[reader])
    if reader is None or product is None or product.function != "multiply":
        return None
    if not isinstance(product.b, Ref) or product.activation is not None:
        return None
    factor = product.b if product.a.name == name else product.a
    shape = links.values[factor.name].shape
    alone = sum(size > 1 for size in shape) <= 1 and shape[-1:] == (1,)
    if not alone or len(shape) != len(value.shape) or _value(links, reader).shape != value.shape:
        return None
    return _Factor(reader, factor)


def _is_same(links: Links, position: int, shape: tuple[int, ...]) -> bool:
    """True if a node is a view that changes nothing."""
    node = links.nodes[position]
    view = Expand.of(node) is not None or Reshape.of(node) is not None
    return view and _value(links, position).shape == shape


def _value(links: Links, position: int) -> Value:
    return links.values[result(links.nodes[position])]
