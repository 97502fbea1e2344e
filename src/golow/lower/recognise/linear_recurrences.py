"""Linear recurrences that a network writes as a loop over its steps, as one operator.

state = decay[t] * state + x[t], from zero on, for every step of an unrolled loop: the scan of state
space models such as Mamba (Gu and Dao 2023, arXiv:2312.00752), gated and decaying averages.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from golow.lower.ir.clean_up import eliminate_dead_code
from golow.lower.ir.graph import Graph, Node, Ref, Value
from golow.lower.ir.operator import written
from golow.lower.ir.rewriting import Links, Names, rewritten
from golow.lower.operators.binary import Binary
from golow.lower.operators.fill import Fill
from golow.lower.operators.linear_recurrence import LinearRecurrence
from golow.lower.operators.reshape import Reshape
from golow.lower.operators.slice import Slice
from golow.lower.recognise.stacked_steps import FEWEST, Stack

VIEWS = ("golow.reshape", "golow.expand", "golow.permute", "golow.slice")


def name_linear_recurrences(graph: Graph) -> Graph:
    """Make one operator of each loop whose decays and terms do not depend on its states."""
    links, names = Links(graph), Names(graph)
    replaced: dict[int, tuple[Node, ...]] = {}
    for chain in _chains(links):
        nodes = [links.nodes[step.position] for step in chain]
        stack = Stack(links, names, nodes[0], {_value(node).name for node in nodes})
        whole = _in_place(links, stack, chain) or _stacked(stack, chain)
        if whole is None:
            continue
        states, axis = whole
        shape = stack.shape(states)
        for index, (step, node) in enumerate(zip(chain, nodes, strict=True)):
            value = _value(node)
            part = names.free(f"{value.name}.slice")
            cut = Slice(x=states, axis=axis, start=index, stop=index + 1, step=1)
            one = Value(name=part, shape=(*shape[:axis], 1, *shape[axis + 1 :]), dtype=value.dtype)
            view = Reshape(x=Ref(name=part), shape=value.shape)
            replaced[step.position] = (
                *(stack.nodes if index == 0 else ()),
                written(node, cut, name=part, outputs=(one,)),
                written(node, view, absorbed=()),
            )
    return eliminate_dead_code(rewritten(graph, replaced)) if replaced else graph


def _in_place(links: Links, stack: Stack, chain: Sequence[_Step]) -> tuple[Ref, int] | None:
    """All states along the axis of decays and terms, where these are the parts of one value each,
    one after the other; and that axis."""
    places = [
        [_place(links, name) for name in names]
        for names in ([step.decay for step in chain], [step.term for step in chain])
    ]
    first = places[0][0]
    if first is None:
        return None
    values = []
    for found in places:
        if None in found or len({(p.source, p.axis) for p in found if p is not None}) > 1:
            return None
        if [p.step for p in found if p is not None] != list(range(len(chain))):
            return None
        values.append(links.values[found[0].source])  # type: ignore[union-attr]
    same = places[0][0].axis == places[1][0].axis  # type: ignore[union-attr]
    decay, term = values
    if not same or decay.shape != term.shape or decay.shape[first.axis] != len(chain):
        return None
    operator = LinearRecurrence(decay=Ref(name=decay.name), x=Ref(name=term.name), axis=first.axis)
    return stack.add(operator, term.shape, term.dtype), first.axis


def _stacked(stack: Stack, chain: Sequence[_Step]) -> tuple[Ref, int] | None:
    """All states along a new first axis."""
    decay = stack.of([step.decay for step in chain])
    term = stack.of([step.term for step in chain])
    if decay is None or term is None or stack.shape(decay) != stack.shape(term):
        return None
    operator = LinearRecurrence(decay=decay, x=term, axis=0)
    return stack.add(operator, stack.shape(term), stack.value(term).dtype), 0


class _Place(NamedTuple):
    """A value without the axis along which it is one element of another one."""

    source: str
    axis: int
    step: int


def _place(links: Links, name: str) -> _Place | None:
    maker = links.maker.get(name)
    view = None if maker is None else Reshape.of(links.nodes[maker])
    sliced = None if view is None else links.maker.get(view.x.name)
    cut = None if sliced is None else Slice.of(links.nodes[sliced])
    if cut is None or cut.stop - cut.start != 1:
        return None
    whole = links.values[cut.x.name].shape
    left = (*whole[: cut.axis], *whole[cut.axis + 1 :])
    return _Place(cut.x.name, cut.axis, cut.start) if links.values[name].shape == left else None


class _Step(NamedTuple):
    """A node that adds a term to the state before it, times a decay; all but the node by the names
    of their values."""

    position: int
    decay: str
    before: str
    term: str


def _chains(links: Links) -> Iterator[list[_Step]]:
    """Steps that follow one another, from a state of zeros on."""
    after: dict[str, _Step] = {}
    begin: list[_Step] = []
    for position in range(len(links.nodes)):
        for step in _readings(links, position):
            if _is_zero(links, step.before):
                begin.append(step)
            else:
                after.setdefault(step.before, step)
    for first in begin:
        chain = [first]
        while (name := _value(links.nodes[chain[-1].position]).name) in after:
            chain.append(after[name])
        if len(chain) >= FEWEST:
            yield chain


def _readings(links: Links, position: int) -> Iterator[_Step]:
    """How a node may be read as a step: which of its terms is a product, and which factor of that
    the state."""
    total = Binary.of(links.nodes[position])
    if total is None or total.function != "add" or total.activation is not None:
        return
    for product, term in ((total.a, total.b), (total.b, total.a)):
        maker = links.maker.get(product.name) if isinstance(product, Ref) else None
        scaled = None if maker is None else Binary.of(links.nodes[maker])
        if scaled is None or scaled.function != "multiply" or scaled.activation is not None:
            continue
        if isinstance(scaled.b, Ref) and isinstance(term, Ref):
            yield _Step(position, scaled.a.name, scaled.b.name, term.name)
            yield _Step(position, scaled.b.name, scaled.a.name, term.name)


def _is_zero(links: Links, name: str) -> bool:
    """True for zeros, seen in any shape."""
    maker = links.maker.get(name)
    if maker is None:
        return False
    node = links.nodes[maker]
    filled = Fill.of(node)
    if filled is not None:
        return filled.value == 0
    return node.op in VIEWS and _is_zero(links, next(node.references()))


def _value(node: Node) -> Value:
    value = node.outputs[0]
    assert value is not None  # noqa: S101 - a sum has one result
    return value
