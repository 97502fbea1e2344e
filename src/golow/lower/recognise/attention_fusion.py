"""Attention fusion: recognises attention in its arithmetic, where a network writes it itself."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import NamedTuple

from golow.lower.ir.clean_up import eliminate_dead_code
from golow.lower.ir.graph import Graph, Node, Pass, Ref, Value
from golow.lower.ir.operator import Operator, record_of, written
from golow.lower.ir.rewriting import Links, Names, result, rewritten
from golow.lower.operators.attention import Attention
from golow.lower.operators.binary import Binary
from golow.lower.operators.expand import Expand
from golow.lower.operators.matrix_product import MatrixProduct
from golow.lower.operators.permute import Permute
from golow.lower.operators.pointwise import Pointwise
from golow.lower.operators.reshape import Reshape
from golow.lower.operators.softmax import Softmax
from golow.lower.recognise.whole_attention import HIDDEN, LOWEST, Kernels

Shape = tuple[int, ...]
HIDING = -1e4  # networks hide scores by this number, and by lower ones


def name_attention(kernels: Kernels) -> Pass:
    """The pass that makes softmax(query key^T + what is added or hidden) value one operator where
    these kernels compute it, in inference: in training its parts are read again."""

    def name_written_attention(graph: Graph) -> Graph:
        """Make attention that is written in its parts one operator."""
        links, names = Links(graph), Names(graph)
        replaced: dict[int, tuple[Node, ...]] = {}
        for node in graph.nodes:
            found = _found(links, node)
            if found is not None and kernels.take(*found.shapes):
                exact = kernels.rounds and not found.only_hides
                made = _nodes(graph.nodes[found.position], found, names, exact)
                replaced[found.position] = tuple(made)
        return eliminate_dead_code(rewritten(graph, replaced))

    return name_written_attention


class _Term(NamedTuple):
    """Term added to the scores, or mask that hides them. whole: the shape of the scores there.
    inverted: whether they are hidden where the mask does not hold. finite: by a large number."""

    value: Ref
    shape: Shape
    whole: Shape
    hides: bool = False
    inverted: bool = False
    finite: bool = False


class _Found(NamedTuple):
    """Attention in parts. position: of the node that makes its result. query: [B, H, L, E], key:
    [B, H, S, E], or turned [B, H, E, S], value: [B, H, S, D]; or without H. factors: by which each
    head's scores are multiplied. terms: from there on."""

    position: int
    query: Value
    key: Value
    turned: bool
    value: Value
    factor: float
    factors: Ref | None
    terms: tuple[_Term, ...]

    @property
    def shapes(self) -> tuple[Shape, Shape, Shape]:
        """Shapes of query, key and value with four axes, the key's as [B, H, S, E]."""
        query, key, value = (_four(item.shape) for item in (self.query, self.key, self.value))
        return query, _turned(key) if self.turned else key, value

    @property
    def only_hides(self) -> bool:
        """True if nothing happens to scores but that some become minus infinity."""
        return all(term.hides and not term.finite for term in self.terms)


# ---------------------------------------------------------------- recognising


def _found(links: Links, node: Node) -> _Found | None:
    """Attention around this softmax."""
    softmax = Softmax.of(node)
    if softmax is None or softmax.log:
        return None
    weights = links.values[result(node)]
    scores = _scores(links, softmax.x, ())
    weighing = _weighing(links, weights.name)
    if scores is None or weighing is None or softmax.axis != len(weights.shape) - 1:
        return None
    product, factors, terms = scores
    position, second = weighing
    of_key, turned = _key(links, product.b)
    query, key, value = (_heads(links, ref) for ref in (product.a, of_key, second.b))
    after = links.only_reader(result(links.nodes[position]))
    joined = Reshape.of(links.nodes[after]) if after is not None else None
    if second.factor != 1 or product.added or second.added or not _typed(links, terms):
        return None
    outer = query.shape[:-2]
    if len(outer) == 2 and key.shape[:2] == value.shape[:2] == outer:
        output = (*outer, query.shape[-2], value.shape[-1])
        if joined is not None and after is not None and joined.shape == output:
            return _Found(after, query, key, turned, value, product.factor, factors, terms)
    query, key, value = (links.values[ref.name] for ref in (product.a, of_key, second.b))
    if len(query.shape) == len(key.shape) == len(value.shape) == 3 and factors is None:
        return _Found(position, query, key, turned, value, product.factor, None, terms)
    return None


def _typed(links: Links, terms: tuple[_Term, ...]) -> bool:
    """True if the terms are masks of truth values and float32 numbers."""
    return all(
        links.values[term.value.name].dtype == ("bool" if term.hides else "float32")
        for term in terms
    )


def _scores(
    links: Links, ref: Ref, terms: tuple[_Term, ...], factors: Ref | None = None
) -> tuple[MatrixProduct, Ref | None, tuple[_Term, ...]] | None:
    """The product that gives the scores, what multiplies each head's, and what happens to them then
    on the way to this value."""
    maker = links.maker.get(ref.name)
    if maker is None or links.only_reader(ref.name) is None:
        return None
    record, whole = record_of(links.nodes[maker]), links.values[ref.name].shape
    if isinstance(record, MatrixProduct):
        return record, factors, terms
    if isinstance(record, Reshape):
        same_scores = links.values[record.x.name].shape[-2:] == whole[-2:]
        return _scores(links, record.x, terms, factors) if same_scores else None
    if factors is not None:  # they would multiply what is added before, too
        return None
    if isinstance(record, Binary) and (pair := _of_heads(links, record, whole)) is not None:
        return _scores(links, pair[0], terms, pair[1])
    for inner, term in _steps(links, record, whole):
        found = _scores(links, inner, (term, *terms))
        if links.values[inner.name].shape == whole and found is not None:
            return found
    return None


def _of_heads(links: Links, record: Binary, whole: Shape) -> tuple[Ref, Ref] | None:
    """Scores and what multiplies those of each head, if nothing else happens to them."""
    if record.function != "multiply" or record.activation or not isinstance(record.b, Ref):
        return None
    for scores, factors in ((record.a, record.b), (record.b, record.a)):
        shape = links.values[factors.name].shape
        if len(whole) == 4 and shape in ((whole[1], 1, 1), (1, whole[1], 1, 1)):
            return scores, factors
    return None


def _steps(links: Links, record: Operator | None, whole: Shape) -> Iterator[tuple[Ref, _Term]]:
    """Candidates for the scores among the operands, and the operator's effect on them."""

    def term(ref: Ref, number: object = None, inverted: bool = False) -> _Term:
        shape, hides = links.values[ref.name].shape, number is not None
        return _Term(ref, shape, whole, hides, inverted, hides and not _is_infinite(number))

    match record:
        case Binary(function="add", a=Ref() as a, b=Ref() as b, activation=None):
            yield a, term(b)
            yield b, term(a)
        case Pointwise(function="choose", operands=(Ref() as mask, number, Ref() as x)) if (
            _is_hidden(number)
        ):
            yield x, term(mask, number)
        case Pointwise(function="choose", operands=(Ref() as mask, Ref() as x, number)) if (
            _is_hidden(number)
        ):
            yield x, term(mask, number, inverted=True)


def _is_hidden(number: object) -> bool:
    """True if no weight is left of a score that becomes this number, beside others."""
    return _is_infinite(number) or (isinstance(number, float | int) and number <= HIDING)


def _is_infinite(number: object) -> bool:
    return number == -math.inf


def _weighing(links: Links, name: str) -> tuple[int, MatrixProduct] | None:
    """The product whose first operand are these weights, and its position."""
    reader = links.only_reader(name)
    while reader is not None:
        node = links.nodes[reader]
        record = record_of(node)
        if isinstance(record, MatrixProduct):
            return (reader, record) if record.a.name == name else None
        if not isinstance(record, Reshape | Expand):
            return None
        if math.prod(links.values[result(node)].shape) != math.prod(links.values[name].shape):
            return None
        name = result(node)
        reader = links.only_reader(name)
    return None


def _key(links: Links, ref: Ref) -> tuple[Ref, bool]:
    """The key of which this is the second operand of a product; whether it is turned."""
    maker = links.maker.get(ref.name)
    view = Permute.of(links.nodes[maker]) if maker is not None else None
    if view is None or view.order != _turned(tuple(range(len(view.order)))):
        return ref, True
    return view.x, False


def _heads(links: Links, ref: Ref) -> Value:
    """The value with four axes of which this one is a view, with the first two joined; else it."""
    value = links.values[ref.name]
    maker = links.maker.get(ref.name)
    view = Reshape.of(links.nodes[maker]) if maker is not None else None
    if view is None:
        return value
    whole = links.values[view.x.name]
    return whole if len(whole.shape) == 4 and whole.shape[-2:] == value.shape[-2:] else value


# ---------------------------------------------------------------- writing


def _nodes(node: Node, found: _Found, names: Names, exact: bool) -> Iterator[Node]:
    """The operator in the place of this node, and what it reads. exact: as `Attention` states."""
    made = _Making(node, names)
    query, key, value = (
        made.shaped(Ref(name=item.name), item.shape, _four(item.shape))
        for item in (found.query, found.key, found.value)
    )
    if found.turned:
        key = made.add(Permute(x=key, order=(0, 1, 3, 2)), _turned(_four(found.key.shape)))
    if found.factors is not None:
        shape = found.query.shape
        factors = made.add(Reshape(x=found.factors, shape=(1, shape[1], 1, 1)), (1, shape[1], 1, 1))
        query = made.add(Binary(function="multiply", a=query, b=factors), shape)
    whole = (*_four(found.query.shape)[:3], found.shapes[1][2])
    operator = Attention(
        query=query, key=key, value=value, added=made.added(found, whole), causal=False,
        scale=found.factor, exact=exact,
    )  # fmt: skip
    output = node.outputs[0]
    four = (*whole[:3], found.value.shape[-1])
    if output is None or output.shape == four:
        yield from made.nodes
        yield written(node, operator, outputs=(output, None))
        return
    result4 = made.value("heads", four)
    yield from made.nodes
    yield written(node, operator, name=f"{node.name}.heads", outputs=(result4, None))
    yield written(node, Reshape(x=Ref(name=result4.name), shape=output.shape))


class _Making:
    """Makes nodes beside another one."""

    def __init__(self, beside: Node, names: Names) -> None:
        self._beside, self._names = beside, names
        self.nodes: list[Node] = []

    def value(self, what: str, shape: Shape, dtype: str = "float32") -> Value:
        """A new value."""
        name = self._names.free(f"{self._beside.name}.{what}")
        return Value(name=name, shape=shape, dtype=dtype)

    def add(self, operator: Operator, shape: Shape, dtype: str = "float32") -> Ref:
        """Compute a new value."""
        made = self.value("part", shape, dtype)
        self.nodes.append(written(self._beside, operator, name=made.name, outputs=(made,)))
        return Ref(name=made.name)

    def shaped(self, ref: Ref, shape: Shape, wanted: Shape, dtype: str = "float32") -> Ref:
        """The value in another shape."""
        if shape == wanted:
            return ref
        return self.add(Reshape(x=ref, shape=wanted), wanted, dtype)

    def added(self, found: _Found, whole: Shape) -> Ref | None:
        """All terms as what is added to scores of this shape [B, H, L, S]: of four axes, of which
        the last one is whole."""
        total: Ref | None = None
        shape: Shape = ()
        hidden = HIDDEN if found.only_hides else LOWEST
        for term in found.terms:
            own, own_shape = self._four(term, whole)
            both = tuple(map(max, own_shape, shape or own_shape))
            if term.hides:
                kept = total or 0.0
                operands = (own, kept, hidden) if term.inverted else (own, hidden, kept)
                choice = Pointwise(function="choose", operands=operands, dtype="float32")
                total = self.add(choice, both)
            elif total is None:
                total = own
            else:
                if shape != both:  # an addition repeats one operand at most
                    total = self.add(Expand(x=total, shape=both), both)
                total = self.add(Binary(function="add", a=total, b=own), both)
            shape = both
        if total is None:
            return None
        if not all(term.hides for term in found.terms):  # a number may be minus infinity, too
            finite = Pointwise(function="maximum", operands=(total, hidden), dtype="float32")
            total = self.add(finite, shape)
        return total

    def _four(self, term: _Term, whole: Shape) -> tuple[Ref, Shape]:
        """A term with four axes, the last one whole. Scores may have other axes in front, such as
        windows of an image, or images and heads in one: then each has its own."""
        images, heads, _, columns = whole
        dtype = "bool" if term.hides else "float32"
        shape = (*(1,) * (len(term.whole) - len(term.shape)), *term.shape)
        outer, rows = shape[:-2], shape[-2]
        own = term.whole[:-2]
        if all(size == 1 for size in outer):
            full, first = outer, (1, 1)
        elif math.prod(own[:-1]) == images and own[-1] == heads:
            alone = all(size == 1 for size in outer[:-1])
            full = (*(outer[:-1] if alone else own[:-1]), outer[-1])
            first = (1 if alone else images, outer[-1])
        else:
            full, first = own, (images, heads)
        ref = self.shaped(term.value, term.shape, shape, dtype)
        if (*full, rows, columns) != shape:
            shape = (*full, rows, columns)
            ref = self.add(Expand(x=ref, shape=shape), shape, dtype)
        four = (*first, rows, columns)
        return self.shaped(ref, shape, four, dtype), four


def _four(shape: Shape) -> Shape:
    """[B, 1, L, E] for [B, L, E]."""
    return shape if len(shape) == 4 else (shape[0], 1, *shape[1:])


def _turned(axes: Shape) -> Shape:
    """The last two in the other order."""
    return (*axes[:-2], axes[-1], axes[-2])
