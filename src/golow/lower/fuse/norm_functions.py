"""Fusion of batch norm in training with what follows it: an activation that does not only clip, and
a sum without an activation.

The gradient of such an activation reads its argument, the norm's result. Backward computes that
again from what the norm read: neither direction writes it.
"""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from golow.lower.fuse.product_sums import in_memory
from golow.lower.ir.graph import Graph, Node, Ref
from golow.lower.ir.operator import vocabulary, written
from golow.lower.ir.rewriting import Links, absorbing, result, rewritten
from golow.lower.operators.activation import Activate, ActivateBackward
from golow.lower.operators.batch_norm import BatchNorm, BatchNormBackward
from golow.lower.operators.binary import Binary
from golow.lower.operators.reshape import Reshape


def fuse_batch_norm_function(graph: Graph) -> Graph:
    """Fuse an activation into the batch norm that it and its gradient alone read, and that gradient
    into the norm's."""
    links = Links(graph)
    replaced: dict[int, tuple[Node, ...]] = {}
    for position in range(len(graph.nodes)):
        found = _found(links, position)
        if found is not None:
            replaced |= _fused(links, found)
    return rewritten(graph, replaced) if replaced else graph


class _Found(NamedTuple):
    """Positions of a norm, of the activation after it, and of the gradients of both."""

    norm: int
    activation: int
    outer: int
    inner: int


def _found(links: Links, position: int) -> _Found | None:
    inner = BatchNormBackward.of(links.nodes[position])
    if inner is None or inner.activation is not None or inner.second is not None:
        return None
    outer = links.made_by(inner.gradient, ActivateBackward.op())
    place = links.made_by(inner.mean, BatchNorm.op())
    if outer is None or place is None or links.only_reader(inner.gradient.name) is None:
        return None
    norm = BatchNorm.of(links.nodes[place])
    if norm is None or norm.x != inner.x or norm.residual is not None:
        return None
    activation = _activation(links, result(links.nodes[place]), outer)
    if norm.activation is not None or activation is None:
        return None
    return _Found(place, activation, outer, position)


def _activation(links: Links, argument: str, outer: int) -> int | None:
    """The position of the activation with that gradient, if nothing else reads its argument."""
    readers = [position for position in links.readers[argument] if position != outer]
    gradient = ActivateBackward.of(links.nodes[outer])
    if len(readers) != 1 or argument in links.returned or gradient is None:
        return None
    node = links.nodes[readers[0]]
    activation = Activate.of(node)
    if activation is None or activation.activation != gradient.activation:
        return None
    read = result(node) if gradient.from_result else argument
    return readers[0] if gradient.value.name == read else None


def _fused(links: Links, found: _Found) -> dict[int, tuple[Node, ...]]:
    """Nodes that replace the four: the norm runs where the activation ran."""
    before, activate, outer, after = (links.nodes[position] for position in found)
    norm, gradient = BatchNorm.of(before), ActivateBackward.of(outer)
    inner = BatchNormBackward.of(after)
    assert norm and gradient and inner  # noqa: S101 - as _found states
    forward = msgspec.structs.replace(norm, activation=gradient.activation)
    backward = msgspec.structs.replace(
        inner, gradient=gradient.gradient, activation=gradient.activation, shift=norm.shift
    )
    outputs = (activate.outputs[0], *before.outputs[1:])
    absorbed = absorbing(before, activate)
    return {
        found.norm: (),
        found.activation: (written(before, forward, outputs=outputs, absorbed=absorbed),),
        found.outer: (),
        found.inner: (written(after, backward, absorbed=absorbing(after, outer)),),
    }


# ---------------------------------------------------------------- sums


def add_within_norms(graph: Graph) -> Graph:
    """Let a batch norm add the other term of a sum to its result, if nothing else reads that, as at
    the end of a residual block without an activation. The gradient of the sum is that of both."""
    links = Links(graph)
    replaced: dict[int, tuple[Node, ...]] = {}
    for position, node in enumerate(graph.nodes):
        add = Binary.of(node)
        if add is None or add.function != "add" or add.activation is not None:
            continue
        for term, other in ((add.a, add.b), (add.b, add.a)):
            place = _norm_before(links, term, other)
            if place is not None and isinstance(other, Ref):
                replaced |= _sum(links, place, position, other)
                break
    return rewritten(graph, replaced) if replaced else graph


def _norm_before(links: Links, term: Ref | float, other: Ref | float) -> int | None:
    """The position of the norm that makes the term for the sum alone, and can read the other one
    where it is stored."""
    place = links.made_by(term, BatchNorm.op())
    norm = None if place is None else BatchNorm.of(links.nodes[place])
    if norm is None or norm.residual is not None or norm.activation is not None:
        return None
    if not isinstance(term, Ref) or not isinstance(other, Ref) or term == other:
        return None
    alike = links.values[term.name].shape == links.values[other.name].shape
    alone = links.only_reader(term.name) is not None
    return place if alike and alone and _is_stored(links, other.name) else None


def _is_stored(links: Links, name: str) -> bool:
    """True if the value is written in any case, and is no view whose elements lie elsewhere."""
    maker = links.maker.get(name)
    kind = None if maker is None else vocabulary().get(links.nodes[maker].op)
    is_view = kind is not None and kind.is_view and kind is not Reshape
    return not is_view and in_memory(links, name)


def _sum(links: Links, place: int, position: int, other: Ref) -> dict[int, tuple[Node, ...]]:
    """Nodes that replace norm and sum: the norm runs where the sum was computed."""
    before, add = links.nodes[place], links.nodes[position]
    norm = BatchNorm.of(before)
    assert norm  # noqa: S101 - as _norm_before states
    outputs = (add.outputs[0], *before.outputs[1:])
    total = msgspec.structs.replace(norm, residual=other)
    node = written(before, total, outputs=outputs, absorbed=absorbing(before, add))
    return {place: (), position: (node,)}
