"""Rotary position embeddings: a row's halves, turned by an angle for each pair of elements."""

from __future__ import annotations

from typing import NamedTuple

from golow.lower.ir.graph import Ref
from golow.lower.ir.operator import Kind
from golow.lower.ir.rewriting import Links
from golow.lower.operators.binary import Binary
from golow.lower.operators.concatenate import Concatenate
from golow.lower.operators.slice import Slice


class Rotation(NamedTuple):
    """x cosine + (-x2, x1) sine, over the last axis."""

    x: Ref
    cosine: Ref
    sine: Ref


class _Half(NamedTuple):
    """The first or the second half of a value's last axis."""

    of: Ref
    second: bool


def rotation(links: Links, reference: Ref) -> Rotation | None:
    """The rotation that makes the value: its halves are x1 c1 - x2 s1 and x2 c2 + x1 s2."""
    joined = _maker(links, reference, Concatenate)
    last = len(links.values[reference.name].shape) - 1
    if joined is None or joined.axis != last or len(joined.parts) != 2:
        return None
    low, high = (_terms(links, part) for part in joined.parts)
    if low is None or high is None:
        return None
    for straight, crossed in (low, low[::-1]):
        for along, across in (high, high[::-1]):
            found = _matched(links, straight, crossed, along, across)
            if found is not None:
                return found
    return None


def _matched(
    links: Links, straight: Binary, crossed: Binary, along: Binary, across: Binary
) -> Rotation | None:
    """straight: x1 c1; crossed: -x2 s1; along: x2 c2; across: x1 s2."""
    for x1, c1 in _factors(links, straight):
        for negative, s1 in _factors(links, crossed, negated=True):
            x, cosine, sine = x1.of, c1.of, s1.of
            wanted = {(x, False), (cosine, False)}, {(x, True), (sine, False)}
            if ({x1, c1}, {negative, s1}) != wanted:
                continue
            second = {_Half(x, True), _Half(cosine, True)}, {_Half(x, False), _Half(sine, True)}
            found = any({*pair} == second[0] for pair in _factors(links, along))
            if found and any({*pair} == second[1] for pair in _factors(links, across)):
                return Rotation(x, cosine, sine)
    return None


def _terms(links: Links, reference: Ref) -> tuple[Binary, Binary] | None:
    """The two products that a value is the sum of."""
    total = _maker(links, reference, Binary)
    if total is None or total.function != "add" or total.activation or not isinstance(total.b, Ref):
        return None
    one, other = (_maker(links, item, Binary) for item in (total.a, total.b))
    both = one is not None and other is not None
    return (one, other) if both and _is_product(one) and _is_product(other) else None  # type: ignore[return-value]


def _is_product(node: Binary | None) -> bool:
    return node is not None and node.function == "multiply" and node.activation is None


def _factors(links: Links, product: Binary, negated: bool = False) -> list[tuple[_Half, _Half]]:
    """Both factors as halves, in both orders. negated: the first of them times -1."""
    if not isinstance(product.b, Ref):
        return []
    pairs = (product.a, product.b), (product.b, product.a)
    found = []
    for one, other in pairs:
        first = _negated(links, one) if negated else one
        halves = (_half(links, first), _half(links, other))
        if halves[0] is not None and halves[1] is not None:
            found.append((halves[0], halves[1]))
    return found


def _negated(links: Links, reference: Ref) -> Ref | None:
    node = _maker(links, reference, Binary)
    return node.a if node is not None and _is_product(node) and node.b == -1 else None


def _half(links: Links, reference: Ref | None) -> _Half | None:
    part = None if reference is None else _maker(links, reference, Slice)
    if part is None or part.step != 1:
        return None
    *rest, size = links.values[part.x.name].shape
    if part.axis != len(rest) or size % 2 or part.stop - part.start != size // 2:
        return None
    return _Half(part.x, part.start > 0) if part.start in (0, size // 2) else None


def _maker(links: Links, reference: Ref, kind: type[Kind]) -> Kind | None:
    at = links.maker.get(reference.name)
    return None if at is None else kind.of(links.nodes[at])
