"""Horizontal fusion of recurrent layers: joins the layers and directions of a training step that
the library can compute side by side."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from golow.lower.ir.graph import Graph, Node, Ref, Value
from golow.lower.ir.operator import written
from golow.lower.ir.rewriting import absorbing, rewritten
from golow.lower.operators.recurrence import Recurrence, RecurrenceBackward
from golow.lower.operators.recurrent_stack import RecurrentStack, RecurrentStackBackward
from golow.lower.recognise.recurrences import IDENTITIES

WEIGHTS = ("input_weight", "hidden_weight", "input_bias", "hidden_bias", "projection")


class Side(NamedTuple):
    """A layer in one direction and its gradients, with the positions of both nodes. result: [L, N,
    R]."""

    result: Value
    at: int
    forward: Recurrence
    back_at: int
    backward: RecurrenceBackward

    @property
    def width(self) -> int:
        """R."""
        return self.result.shape[2]


class Layer(NamedTuple):
    """A layer in one or both directions.

    result: with two sides their concatenation, by the node at made_at. gradient: of the result.
    parted_at: nodes that take each side's part of the gradient, if there are two. given_at: the
    last node that makes its gradients: with two sides the sum of those of x.
    """

    sides: tuple[Side, ...]
    result: Value
    made_at: int
    gradient: Ref
    parted_at: tuple[int, ...]
    given_at: int

    @property
    def nodes(self) -> tuple[int, ...]:
        """Positions of all its nodes."""
        own = (p for side in self.sides for p in (side.at, side.back_at))
        return tuple({*own, *self.parted_at, self.made_at, self.given_at})


def join_layers(graph: Graph) -> Graph:
    """Make both directions of a layer one operator, and layers of which each reads nothing but the
    results of the one before; and their gradients another."""
    readers = _Readers(graph)
    chains: list[list[Layer]] = []
    for layer in _layers(graph, readers):
        if chains and readers.joins(chains[-1][-1], layer):
            chains[-1].append(layer)
        else:
            chains.append([layer])
    replaced: dict[int, Sequence[Node]] = {}
    for chain in chains:
        if len(chain) > 1 or len(chain[0].sides) > 1:
            replaced |= {position: () for layer in chain for position in layer.nodes}
            replaced |= _joined(graph, chain)
    return rewritten(graph, replaced) if replaced else graph


class _Readers:
    """The nodes that read a value, directly or through calls that compute nothing."""

    def __init__(self, graph: Graph) -> None:
        self.nodes, self._first = graph.nodes, dict[str, str]()
        self._found: dict[str, set[int]] = {}
        for position, node in enumerate(graph.nodes):
            source = node.arguments[0] if node.op in IDENTITIES else None
            if isinstance(source, Ref):
                self._first |= {v.name: self.first(source.name) for v in node.outputs if v}
                continue
            for name in map(self.first, node.references()):
                self._found.setdefault(name, set()).add(position)
        self._returned = {self.first(item.name) for item in graph.outputs}

    def first(self, name: str) -> str:
        """The value's first name."""
        return self._first.get(name, name)

    def of(self, position: int) -> set[int] | None:
        """The nodes that read the node's first value; None if the graph returns it, or it has
        none."""
        value = self.nodes[position].outputs[0]
        if value is None or value.name in self._returned:
            return None
        return self._found.get(value.name, set())

    def is_made(self, reference: Ref, position: int) -> bool:
        """True if the node makes the value first of its values."""
        value = self.nodes[position].outputs[0]
        return value is not None and self.first(reference.name) == value.name

    def joins(self, one: Layer, other: Layer) -> bool:
        """True if the other layer can be computed with the one before it."""
        first, second = one.sides[0], other.sides[0]
        own = {side.back_at for side in one.sides} if len(one.sides) == 1 else set()
        next_to = {p for side in other.sides for p in (side.at, side.back_at)}
        return (
            len(one.sides) == len(other.sides)
            and self.is_made(second.forward.x, one.made_at)
            and self.of(one.made_at) == own | next_to
            and self.is_made(one.gradient, other.given_at)
            and self.of(other.given_at) == set(one.parted_at or own)
            and _alike(first.forward, second.forward)
            and self.are_read_after(other.sides, one.given_at)
        )

    def are_read_after(self, sides: Sequence[Side], position: int) -> bool:
        """True if gradients but that of x are read only after that node."""
        values = (v for side in sides for v in self.nodes[side.back_at].outputs[1:])
        names = (value.name for value in values if value is not None)
        return all(reader > position for name in names for reader in self._found.get(name, ()))


def _layers(graph: Graph, readers: _Readers) -> Iterator[Layer]:
    """The layers whose last cell state is unused, in the graph's order: in both directions, or
    in the direction of time."""
    sides = _sides(graph, readers)
    used: set[int] = set()
    for place, side in enumerate(sides):
        if side.forward.backwards or side.at in used:
            continue
        found = (_in_both(readers, side, other) for other in sides[place + 1 :])
        both = next((layer for layer in found if layer is not None), None)
        layer = both or Layer(
            (side,), side.result, side.at, side.backward.gradient, (), side.back_at
        )
        used |= set(layer.nodes)
        yield layer


def _sides(graph: Graph, readers: _Readers) -> list[Side]:
    backward: dict[str, tuple[int, RecurrenceBackward]] = {}
    for position, node in enumerate(graph.nodes):
        found = RecurrenceBackward.of(node)
        if found is not None and found.last_gradient is None:
            backward[readers.first(found.output.name)] = position, found
    sides = []
    for position, node in enumerate(graph.nodes):
        forward = Recurrence.of(node)
        made = node.outputs[0] if forward is not None else None
        if forward is None or made is None or node.outputs[1] is not None:
            continue
        if made.name in backward:
            sides.append(Side(made, position, forward, *backward[made.name]))
    return sides


def _in_both(readers: _Readers, one: Side, other: Side) -> Layer | None:
    """Both sides as a layer, if their results are only read side by side."""
    same_input = readers.first(one.forward.x.name) == readers.first(other.forward.x.name)
    if not other.forward.backwards or not same_input or not _alike(one.forward, other.forward):
        return None
    joined = _joining(readers, one, other)
    parts = _parts(readers, one, other)
    given_at = _adding(readers, one, other)
    if joined is None or parts is None or given_at is None:
        return None
    if not readers.are_read_after((one, other), given_at):
        return None
    return Layer((one, other), *joined, parts[0], parts[1], given_at)


def _joining(readers: _Readers, one: Side, other: Side) -> tuple[Value, int] | None:
    """The concatenation of both results along their last axis, their only reader, and its
    position."""
    found = [(readers.of(side.at) or set()) - {side.back_at} for side in (one, other)]
    if found[0] != found[1] or len(found[0]) != 1:
        return None
    (position,) = found[0]
    node = readers.nodes[position]
    parts = node.arguments[0] if node.op == "aten.cat.default" else ()
    if not isinstance(parts, tuple) or len(parts) != 2 or node.arguments[1:] not in ((2,), (-1,)):
        return None
    pairs = zip(parts, (one, other), strict=True)
    right = all(isinstance(p, Ref) and readers.is_made(p, side.at) for p, side in pairs)
    whole = node.outputs[0]
    return (whole, position) if right and whole is not None else None


def _parts(readers: _Readers, one: Side, other: Side) -> tuple[Ref, tuple[int, int]] | None:
    """The gradient of both results, and the positions of the slices of it that each side reads."""
    wide = one.width
    found: list[tuple[Ref, int]] = []
    for start, side in ((0, one), (wide, other)):
        name = readers.first(side.backward.gradient.name)
        at = next((p for p, n in enumerate(readers.nodes) if _makes(n, name)), None)
        node = None if at is None else readers.nodes[at]
        if at is None or node is None or node.op != "aten.slice.Tensor":
            return None
        source, *where = node.arguments
        whole = isinstance(source, Ref) and where == [2, start, start + wide]
        if not whole or readers.of(at) != {side.back_at}:
            return None
        found.append((source, at))  # type: ignore[arg-type]
    if found[0][0] != found[1][0]:
        return None
    return found[0][0], (found[0][1], found[1][1])


def _adding(readers: _Readers, one: Side, other: Side) -> int | None:
    """Position of the sum of both gradients of x, their only reader; if they are not read, of the
    later side's gradients."""
    made = [readers.nodes[side.back_at].outputs[0] for side in (one, other)]
    if made == [None, None]:
        return max(one.back_at, other.back_at)
    found = [readers.of(side.back_at) for side in (one, other)]
    if found[0] is None or found[0] != found[1] or len(found[0]) != 1:
        return None
    (position,) = found[0]
    node = readers.nodes[position]
    plain = node.op == "aten.add.Tensor" and len(node.arguments) == 2 and not node.keywords
    return position if plain else None


def _makes(node: Node, name: str) -> bool:
    return any(value is not None and value.name == name for value in node.outputs)


def _alike(one: Recurrence, other: Recurrence) -> bool:
    """True if both have the same cells and parameters. Their sizes are the same if they have the
    same input, or one has the results of the other: a library's call has one size of results."""
    a, b = ((r.kind, r.input_bias is None, r.projection is None) for r in (one, other))
    return a == b


# ---------------------------------------------------------------- the new nodes


def _joined(graph: Graph, chain: Sequence[Layer]) -> dict[int, Sequence[Node]]:
    first, last, nodes = chain[0], chain[-1], graph.nodes
    sides = [side for layer in chain for side in layer.sides]
    one = sides[0].forward
    fields: dict[str, Any] = {
        "kind": one.kind,
        "bidirectional": len(first.sides) > 1,
        "biased": one.input_bias is not None,
        "x": one.x,
        "hidden": tuple(side.forward.hidden for side in sides),
        "cell": tuple(c for side in sides if (c := side.forward.cell) is not None),
        "weights": tuple(w for side in sides for w in _weights(side.forward)),
    }
    forward = written(
        nodes[sides[-1].at],
        RecurrentStack(**fields),
        outputs=(last.result,),
        absorbed=absorbing(*(nodes[side.at] for side in reversed(sides))),
    )
    fields |= {"gradient": last.gradient, "output": Ref(name=last.result.name)}
    backward = written(
        nodes[sides[0].back_at],
        RecurrentStackBackward(**fields),
        outputs=_results(nodes, first, sides),
        absorbed=absorbing(*(nodes[side.back_at] for side in sides)),
    )
    return {last.made_at: (forward,), first.given_at: (backward,)}


def _weights(layer: Recurrence) -> list[Ref]:
    return [w for name in WEIGHTS if (w := getattr(layer, name)) is not None]


def _results(
    nodes: Sequence[Node], first: Layer, sides: Sequence[Side]
) -> tuple[Value | None, ...]:
    """The gradients of x, the hidden states, the cells and the weights."""
    made = [nodes[side.back_at].outputs for side in sides]
    of_weights = [
        values[3 + index]
        for values, side in zip(made, sides, strict=True)
        for index, name in enumerate(WEIGHTS)
        if getattr(side.forward, name) is not None
    ]
    of_cells = [values[2] for values in made] if sides[0].forward.cell is not None else []
    of_hidden = [values[1] for values in made]
    return (nodes[first.given_at].outputs[0], *of_hidden, *of_cells, *of_weights)
