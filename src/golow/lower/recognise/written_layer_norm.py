"""Layer norm that a network writes itself, in inference, as one operator: of the last axes as in
DeBERTa, or of the channels of an image as in many convolutional networks.

(x - mean) / sqrt(variance + epsilon), where the variance is the mean of the squares of x - mean.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import msgspec

from golow.lower.ir.clean_up import eliminate_dead_code
from golow.lower.ir.graph import Graph, Node, Ref, Value
from golow.lower.ir.operator import Kind, written
from golow.lower.ir.rewriting import Links, Names, absorbing, result, rewritten
from golow.lower.operators.binary import Binary
from golow.lower.operators.layer_norm import LayerNorm
from golow.lower.operators.permute import Permute
from golow.lower.operators.pointwise import Pointwise
from golow.lower.operators.reduce import Reduce
from golow.lower.operators.reshape import Reshape

CHANNELS = (1,)  # of an image
LAST, BACK = (0, 2, 3, 1), (0, 3, 1, 2)  # orders of axes with the channels last, and as before


def name_written_layer_norm(graph: Graph) -> Graph:
    """Replace each quotient that ends such a chain, with the weight and the bias after it."""
    links, names = Links(graph), Names(graph)
    replaced: dict[int, tuple[Node, ...]] = {}
    for position in range(len(graph.nodes)):
        norm = _norm(links, position)
        if norm is not None:
            vectors = _vectors(links, norm, position)
            replaced |= dict.fromkeys((position, *vectors.nodes[:-1]), ())
            last = vectors.nodes[-1] if vectors.nodes else position
            replaced[last] = _named(links, names, norm, vectors, last)
    return eliminate_dead_code(rewritten(graph, replaced)) if replaced else graph


class _Norm(NamedTuple):
    """A norm without its vectors."""

    x: Ref
    axes: tuple[int, ...]
    epsilon: float


class _Vectors(NamedTuple):
    """Weight and bias of a norm, and the positions of their product and sum, in order."""

    weight: Ref | None = None
    bias: Ref | None = None
    nodes: tuple[int, ...] = ()


def _of(links: Links, value: object, kind: type[Kind]) -> Kind | None:
    """The operator that makes the value, if it is of that kind."""
    maker = links.maker.get(value.name) if isinstance(value, Ref) else None
    return None if maker is None else kind.of(links.nodes[maker])


def _plain(links: Links, value: object, function: str) -> Binary | None:
    """The arithmetic that makes the value, if it is this one."""
    found = _of(links, value, Binary)
    return found if found and (found.function, found.activation) == (function, None) else None


def _norm(links: Links, position: int) -> _Norm | None:
    """The norm that this node ends: a quotient, or a product with a reciprocal root."""
    end = Binary.of(links.nodes[position])
    if end is None or end.activation is not None or not isinstance(end.b, Ref):
        return None
    roots = {"divide": ("square_root", ((end.a, end.b),)),
             "multiply": ("reciprocal_square_root", ((end.a, end.b), (end.b, end.a)))}  # fmt: skip
    function, pairs = roots.get(end.function, ("", ()))
    for centred, root in pairs:
        found = _of(links, root, Pointwise)
        if found is not None and found.function == function:
            return _around(links, centred, found.operands[0])
    return None


def _around(links: Links, centred: Ref, shifted: object) -> _Norm | None:
    """The norm of these: x - mean, and the variance plus epsilon."""
    distance, plus = _plain(links, centred, "subtract"), _plain(links, shifted, "add")
    mean = None if distance is None else _mean(links, distance.b)
    variance = None if plus is None else _mean(links, plus.a)
    if distance is None or mean is None or plus is None or variance is None:
        return None
    square = _square(links, variance.x)
    same = square is not None and _is_distance(links, square, distance, mean)
    if mean.x != distance.a or variance.axes != mean.axes or isinstance(plus.b, Ref) or not same:
        return None
    rank = len(links.values[mean.x.name].shape)
    last = mean.axes == tuple(range(mean.axes[0], rank))
    fits = last or (rank == len(LAST) and mean.axes == CHANNELS)
    return _Norm(mean.x, mean.axes, float(plus.b)) if fits else None


def _is_distance(links: Links, value: Ref, distance: Binary, mean: Reduce) -> bool:
    """True if the value is x - mean, too, by the same nodes or others."""
    other = _plain(links, value, "subtract")
    return other is not None and other.a == distance.a and _mean(links, other.b) == mean


def _mean(links: Links, value: object) -> Reduce | None:
    """The mean over axes, which stay, that makes the value; a sum times a share is one, too."""
    found = _of(links, value, Reduce)
    share = _plain(links, value, "multiply")
    total = None if share is None else _of(links, share.a, Reduce)
    if share is not None and total is not None and not isinstance(share.b, Ref):
        count = math.prod(links.values[total.x.name].shape[axis] for axis in total.axes)
        if total.function == "sum" and math.isclose(share.b * count, 1, rel_tol=1e-6):
            found = msgspec.structs.replace(total, function="mean")
    fits = found is not None and found.function == "mean" and found.keep and bool(found.axes)
    return found if fits else None


def _square(links: Links, value: Ref) -> Ref | None:
    power = _of(links, value, Pointwise)
    if power is not None and power.function == "power" and power.operands[1] == 2:
        base = power.operands[0]
        return base if isinstance(base, Ref) else None
    product = _plain(links, value, "multiply")
    return product.a if product is not None and product.a == product.b else None


def _is_of_channels(norm: _Norm, shape: tuple[int, ...]) -> bool:
    return norm.axes == CHANNELS and len(shape) == len(LAST)


def _vectors(links: Links, norm: _Norm, position: int) -> _Vectors:
    """The weight and the bias with which the norm's result alone is multiplied and added."""
    found = _Vectors()
    for wanted in ("multiply", "add"):
        made = result(links.nodes[found.nodes[-1] if found.nodes else position])
        reader = links.only_reader(made)
        function = None if reader is None else Binary.of(links.nodes[reader])
        if function is None or reader is None or function.activation is not None:
            return found
        other = function.b if function.a.name == made else function.a
        if function.function != wanted or not isinstance(other, Ref):
            return found
        vector = _vector(links, norm, other)
        if vector is None:
            return found
        weight = vector if wanted == "multiply" else found.weight
        bias = vector if wanted == "add" else None
        found = _Vectors(weight, bias, (*found.nodes, reader))
    return found


def _vector(links: Links, norm: _Norm, value: Ref) -> Ref | None:
    """The vector of the normalised axes that is multiplied or added, before its views."""
    whole, seen = links.values[norm.x.name].shape, links.values[value.name].shape
    shape = tuple(whole[axis] for axis in norm.axes)
    beside = (*shape, 1, 1) if _is_of_channels(norm, whole) else shape
    if seen[len(seen) - len(beside) :] != beside or math.prod(seen) != math.prod(shape):
        return None
    while links.values[value.name].shape != shape:
        view = _of(links, value, Reshape)
        if view is None:
            return None
        value = view.x
    return value


def _named(
    links: Links, names: Names, norm: _Norm, vectors: _Vectors, last: int
) -> tuple[Node, ...]:
    """The operator, between permutations if it is one of channels."""
    node, whole = links.nodes[last], links.values[norm.x.name]
    output = node.outputs[0]
    assert output is not None  # noqa: S101 - arithmetic has one result
    absorbed = absorbing(node, *(links.nodes[place] for place in vectors.nodes[:-1]))
    operator = LayerNorm(
        x=norm.x,
        weight=vectors.weight,
        bias=vectors.bias,
        axes=len(norm.axes),
        epsilon=norm.epsilon,
    )
    if not _is_of_channels(norm, whole.shape):
        return (written(node, operator, outputs=(output, None, None), absorbed=absorbed),)
    shape = tuple(whole.shape[axis] for axis in LAST)

    def seen(name: str) -> Value:
        return msgspec.structs.replace(
            output, name=names.free(f"{output.name}.{name}"), shape=shape
        )

    before, after = seen("turned"), seen("normed")
    operator = msgspec.structs.replace(operator, x=Ref(name=before.name))
    plain = msgspec.structs.replace(node, absorbed=())
    return (
        written(plain, Permute(x=norm.x, order=LAST), name=before.name, outputs=(before,)),
        written(node, operator, name=after.name, outputs=(after, None, None), absorbed=absorbed),
        written(plain, Permute(x=Ref(name=after.name), order=BACK)),
    )
