"""The pass that joins recurrent layers of a training step: the library computes a layer's time step
beside an earlier layer's next one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from golow.lower.graph import Graph, Node, Ref, Value
from golow.lower.operator import written
from golow.lower.operators.recurrence import Recurrence, RecurrenceBackward
from golow.lower.operators.recurrent_stack import RecurrentStack, RecurrentStackBackward
from golow.lower.recurrences import IDENTITIES
from golow.lower.rewriting import absorbing, rewritten

WEIGHTS = ("input_weight", "hidden_weight", "input_bias", "hidden_bias", "projection")


class Layer(NamedTuple):
    """A layer forwards in time and its gradients, with the positions of both nodes."""

    at: int
    forward: Recurrence
    back_at: int
    backward: RecurrenceBackward

    @property
    def weights(self) -> tuple[Ref, ...]:
        """The parameters that it has."""
        return tuple(w for name in WEIGHTS if (w := getattr(self.forward, name)) is not None)


def join_layers(graph: Graph) -> Graph:
    """Make layers of which each reads nothing but the results of the one before one operator, and
    their gradients another."""
    values = _Values(graph)
    layers = _layers(graph, values)
    chains: list[list[Layer]] = []
    for layer in layers:
        if chains and values.joins(chains[-1][-1], layer):
            chains[-1].append(layer)
        else:
            chains.append([layer])
    replaced: dict[int, Sequence[Node]] = {}
    for chain in chains:
        if len(chain) > 1:
            replaced |= {p: () for layer in chain for p in (layer.at, layer.back_at)}
            replaced |= _joined(graph, chain)
    return rewritten(graph, replaced) if replaced else graph


class _Values:
    """Who reads a value, whatever calls that compute nothing name it."""

    def __init__(self, graph: Graph) -> None:
        self._graph, self._first = graph, dict[str, str]()
        self._readers: dict[str, list[int]] = {}
        for position, node in enumerate(graph.nodes):
            source = node.arguments[0] if node.op in IDENTITIES else None
            if isinstance(source, Ref):
                self._first |= {v.name: self.first(source.name) for v in node.outputs if v}
                continue
            for name in set(map(self.first, node.references())):
                self._readers.setdefault(name, []).append(position)
        self._returned = {self.first(item.name) for item in graph.outputs}

    def first(self, name: str) -> str:
        """The value's first name."""
        return self._first.get(name, name)

    def joins(self, one: Layer, other: Layer) -> bool:
        """Whether the other layer can be computed with the one before it."""
        made = self._only(one.at, (one.back_at, other.at, other.back_at))
        passed = self._only(other.back_at, (one.back_at,))
        return (
            made is not None
            and self.first(other.forward.x.name) == made
            and passed is not None
            and self.first(one.backward.gradient.name) == passed
            and _alike(one, other)
            and self._later(other.back_at, one.back_at)
        )

    def _only(self, position: int, readers: tuple[int, ...]) -> str | None:
        """The first value of the node, if just these nodes read it."""
        value = self._graph.nodes[position].outputs[0]
        if value is None or value.name in self._returned:
            return None
        found = self._readers.get(value.name, [])
        return value.name if sorted(found) == sorted(readers) else None

    def _later(self, position: int, least: int) -> bool:
        """Whether what else the node gives is read only after the other one."""
        names = (v.name for v in self._graph.nodes[position].outputs[1:] if v is not None)
        return all(reader > least for name in names for reader in self._readers.get(name, []))


def _layers(graph: Graph, values: _Values) -> list[Layer]:
    """The layers forwards in time whose cell's last state nobody reads, in the graph's order."""
    backward: dict[str, tuple[int, RecurrenceBackward]] = {}
    for position, node in enumerate(graph.nodes):
        found = RecurrenceBackward.of(node)
        if found is not None and found.last_gradient is None:
            backward[values.first(found.output.name)] = position, found
    layers = []
    for position, node in enumerate(graph.nodes):
        forward = Recurrence.of(node)
        made = node.outputs[0] if forward is not None else None
        if forward is None or made is None or node.outputs[1] is not None or forward.backwards:
            continue
        if made.name in backward:
            layers.append(Layer(position, forward, *backward[made.name]))
    return layers


def _alike(one: Layer, other: Layer) -> bool:
    """Whether both have the same cells with the same sizes. The input of the second is the result
    of the first, so that this is a matter of kind and parameters."""
    a, b = one.forward, other.forward
    same = (a.kind, a.input_bias is None, a.projection is None)
    return same == (b.kind, b.input_bias is None, b.projection is None)


def _joined(graph: Graph, chain: Sequence[Layer]) -> dict[int, Sequence[Node]]:
    last, first = chain[-1], chain[0]
    fields = {
        "kind": first.forward.kind,
        "biased": first.forward.input_bias is not None,
        "x": first.forward.x,
        "hidden": tuple(layer.forward.hidden for layer in chain),
        "cell": tuple(c for layer in chain if (c := layer.forward.cell) is not None),
        "weights": tuple(weight for layer in chain for weight in layer.weights),
    }
    nodes = graph.nodes
    forward = written(
        nodes[last.at],
        RecurrentStack(**fields),  # type: ignore[arg-type]
        outputs=nodes[last.at].outputs[:1],
        absorbed=absorbing(*(nodes[layer.at] for layer in reversed(chain))),
    )
    backward = written(
        nodes[first.back_at],
        RecurrentStackBackward(
            gradient=last.backward.gradient,
            output=last.backward.output,
            **fields,  # type: ignore[arg-type]
        ),
        outputs=_results(nodes, chain),
        absorbed=absorbing(*(nodes[layer.back_at] for layer in chain)),
    )
    return {last.at: (forward,), first.back_at: (backward,)}


def _results(nodes: Sequence[Node], chain: Sequence[Layer]) -> tuple[Value | None, ...]:
    """The gradients of x, the hidden states, the cells and the weights."""
    made = [nodes[layer.back_at].outputs for layer in chain]
    given = [layer.forward for layer in chain]
    of_weights = [
        values[3 + index]
        for values, layer in zip(made, given, strict=True)
        for index, name in enumerate(WEIGHTS)
        if getattr(layer, name) is not None
    ]
    of_cells = [values[2] for values in made] if given[0].cell is not None else []
    return (made[0][0], *(values[1] for values in made), *of_cells, *of_weights)
