"""Horizontal fusion in training: computes linear layers of one input as one, forward and backward.

Query, key and value of attention, or gate and input of a gated layer, are then one product each for
their results, for the gradient of their input and for those of their weights. Weights and gradients
are side by side in memory, so that nothing is joined but gradients of results.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence

import msgspec

from golow.lower.fuse.horizontal_fusion import ALIGNED, reads_slices, together
from golow.lower.fuse.trained_layers import SWAPPED, TrainedLayer, trained_layers
from golow.lower.ir.graph import Graph, Node, Ref, Value
from golow.lower.ir.operator import Operator, is_view, written
from golow.lower.ir.rewriting import Links, Names, absorbing, in_order, result, rewritten
from golow.lower.operators.binary import Binary
from golow.lower.operators.concatenate import Concatenate
from golow.lower.operators.linear import Linear
from golow.lower.operators.matrix_product import MatrixProduct
from golow.lower.operators.permute import Permute
from golow.lower.operators.reduce import Reduce
from golow.lower.operators.reshape import Reshape
from golow.lower.operators.slice import Slice

# Nodes between the gradients of two layers that are joined: until the last one is there, the
# others are kept.
NEAR = 24


def join_trained_layers(graph: Graph) -> Graph:
    """Make linear layers of the same input one layer, whose result and gradients are cut into
    theirs. The gradients of the input are products of which the graph has the sum alone."""
    links, names = Links(graph), Names(graph)
    replaced: dict[int, Sequence[Node]] = {}
    dropped: set[str] = set()
    for layers in _of_one_input(links, trained_layers(graph)):
        replaced |= _Joined(links, names, layers).nodes()
        further = (layer.of_x for layer in layers[1:] if layer.of_x is not None)
        dropped |= {result(links.nodes[position]) for position in further}
    if not replaced:
        return graph
    gone, renamed = _without_terms(links, dropped)
    return in_order(rewritten(graph, {**replaced, **gone}, renamed))


def _of_one_input(links: Links, layers: Sequence[TrainedLayer]) -> Iterator[list[TrainedLayer]]:
    """Two or more layers each that can be computed as one."""
    groups: dict[object, list[TrainedLayer]] = defaultdict(list)
    for layer in layers:
        output = links.nodes[layer.forward].outputs[0]
        if output is None or output.shape[-1] % ALIGNED or not reads_slices(links, output):
            continue
        of_x = None if layer.of_x is None else _sum_of(links, result(links.nodes[layer.of_x]))
        shape = links.values[layer.x].shape
        groups[layer.source, shape, layer.bias is None, of_x].append(layer)
    for group in groups.values():
        yield from (part for part in _near_one_another(links, group) if len(part) > 1)


def _near_one_another(links: Links, group: list[TrainedLayer]) -> Iterator[list[TrainedLayer]]:
    """The group in parts whose gradients are computed soon after one another."""
    part = group[:1]
    for layer in group[1:]:
        between = links.nodes[part[-1].of_weight : layer.of_weight]
        if sum(not is_view(node) for node in between) > NEAR:
            yield part
            part = []
        part.append(layer)
    yield part


def _sum_of(links: Links, term: str) -> str:
    """The last sum to which a term contributes, if nothing else reads it or what is between."""
    name, found = term, term
    while (position := links.only_reader(name)) is not None:
        node = links.nodes[position]
        if Reshape.of(node) is None:
            if not _is_sum(links, node):
                break
            found = result(node)
        name = result(node)
    return found


def _is_sum(links: Links, node: Node) -> bool:
    """True if it adds two values of one shape."""
    add = Binary.of(node)
    if add is None or add.function != "add" or add.activation is not None:
        return False
    if not isinstance(add.b, Ref) or add.a == add.b:
        return False
    return links.values[add.a.name].shape == links.values[add.b.name].shape


def _without_terms(
    links: Links, dropped: set[str]
) -> tuple[dict[int, Sequence[Node]], dict[str, str]]:
    """Which nodes are left out without these terms of sums, and what stands for their results."""
    gone: dict[int, Sequence[Node]] = {}
    renamed: dict[str, str] = {}
    for position, node in enumerate(links.nodes):
        terms = [name for name in node.references() if name in dropped]
        if not terms:
            continue
        gone[position] = ()
        others = [name for name in node.references() if name not in dropped]
        if others:
            renamed[result(node)] = renamed.get(others[0], others[0])
        else:
            dropped.add(result(node))
    return gone, renamed


class _Joined:
    """The nodes of several layers as one, in the places of theirs."""

    def __init__(self, links: Links, names: Names, layers: Sequence[TrainedLayer]) -> None:
        self._links, self._names, self._layers = links, names, layers
        self._first = layers[0]
        self._widths = [links.values[layer.gradient].shape[1] for layer in layers]
        forward = result(links.nodes[self._first.forward])
        self._weight, self._bias = (names.free(f"{forward}_{kind}") for kind in ("weight", "bias"))

    def nodes(self) -> dict[int, Sequence[Node]]:
        """The nodes by position. They may be before what they read."""
        gradient = self._value(self._first.gradient, 1)
        return {
            **self._forward(),
            **self._of_weights(gradient),
            **self._of_biases(gradient),
            **self._of_input(gradient),
        }

    def _forward(self) -> dict[int, Sequence[Node]]:
        node = self._links.nodes[self._first.forward]
        weights = [Ref(name=layer.weight) for layer in self._layers]
        biases = [Ref(name=layer.bias) for layer in self._layers if layer.bias is not None]
        made, bias = [together(self._links, node, self._weight, weights)], None
        if biases:
            made.append(together(self._links, node, self._bias, biases))
            bias = Ref(name=self._bias)
        layer = Linear(x=Ref(name=self._first.x), weight=Ref(name=self._weight), bias=bias)
        return self._cut([one.forward for one in self._layers], layer, made)

    def _of_weights(self, gradient: Value) -> dict[int, Sequence[Node]]:
        """The gradients of the weights; first those of the results are joined."""
        node, shape = self._links.nodes[self._first.of_weight], gradient.shape[::-1]
        name = self._names.free(f"{gradient.name}_turned")
        turned = msgspec.structs.replace(gradient, name=name, shape=shape)
        parts = tuple(Ref(name=layer.gradient) for layer in self._layers)
        made = [
            _node(node, Concatenate(parts=parts, axis=1), gradient),
            _node(node, Permute(x=Ref(name=gradient.name), order=SWAPPED), turned),
        ]
        product = MatrixProduct(a=Ref(name=name), b=Ref(name=self._first.x))
        return self._cut([layer.of_weight for layer in self._layers], product, made)

    def _of_biases(self, gradient: Value) -> dict[int, Sequence[Node]]:
        positions = [layer.of_bias for layer in self._layers if layer.of_bias is not None]
        total = Reduce.of(self._links.nodes[positions[0]]) if positions else None
        if total is None:
            return {}
        return self._cut(positions, msgspec.structs.replace(total, x=Ref(name=gradient.name)), [])

    def _of_input(self, gradient: Value) -> dict[int, Sequence[Node]]:
        """The sum of the gradients of the input, in the place of the first one."""
        positions = [layer.of_x for layer in self._layers if layer.of_x is not None]
        found: dict[int, Sequence[Node]] = dict.fromkeys(positions, ())
        if positions:
            product = MatrixProduct(a=Ref(name=gradient.name), b=Ref(name=self._weight))
            found[positions[0]] = (written(self._links.nodes[positions[0]], product),)
        return found

    def _cut(
        self, positions: Sequence[int], operator: Operator, before: Sequence[Node]
    ) -> dict[int, Sequence[Node]]:
        """The operator that computes the results of all nodes at these positions, side by side
        along the axis of the layers' outputs, and ranges of its result in place of each."""
        nodes = [self._links.nodes[position] for position in positions]
        own = nodes[0].outputs[0]
        assert own is not None  # noqa: S101 - dead code is gone
        axis = 0 if isinstance(operator, MatrixProduct) else len(own.shape) - 1
        whole = self._value(own.name, axis)
        absorbed = absorbing(nodes[0], *nodes[1:])
        made = written(nodes[0], operator, name=whole.name, outputs=(whole,), absorbed=absorbed)
        found: dict[int, Sequence[Node]] = {}
        start = 0
        for position, node, width in zip(positions, nodes, self._widths, strict=True):
            part = Slice(x=Ref(name=whole.name), axis=axis, start=start, stop=start + width, step=1)
            found[position] = (written(node, part, absorbed=()),)
            start += width
        first = positions[0]
        return found | {first: (*before, made, *found[first])}

    def _value(self, like: str, axis: int) -> Value:
        """A value as that of the first layer, with the outputs of all along this axis."""
        value = self._links.values[like]
        shape = (*value.shape[:axis], sum(self._widths), *value.shape[axis + 1 :])
        name = self._names.free(f"{like}_joined")
        return msgspec.structs.replace(value, name=name, shape=shape)


def _node(beside: Node, operator: Operator, value: Value) -> Node:
    inner = msgspec.structs.replace(beside, absorbed=())
    return written(inner, operator, name=value.name, outputs=(value,))
