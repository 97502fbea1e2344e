"""Complex lowering: replaces complex numbers with pairs of real ones, as rotary embeddings have
them: a complex value becomes a real one with an additional axis of size two, for the real and the
imaginary part. The vendor's libraries compute only with real numbers."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import msgspec

from golow.lower.aten.complex_definitions import COMPLEX, DEFINITIONS, Parts, UnknownError
from golow.lower.aten.decomposition import unfold
from golow.lower.ir.graph import Argument, Graph, Node, Ref, Value
from golow.lower.ir.rewriting import Links, Names, result
from golow.lower.ir.spelling import bound
from golow.lower.ir.verify import results_of

PARTS = "float32"
Shape = tuple[int, ...]


def pair_complex_numbers(graph: Graph) -> Graph:
    """Compute with pairs; leave the graph as it is if an operation on complex numbers has no
    definition here, which is then refused by its name."""
    values = graph.values()
    if not any(value.dtype == COMPLEX for value in values.values()):
        return graph
    unfolded = unfold(graph, _has_no_definition)
    try:
        pairs = Pairs(unfolded)
        nodes = tuple(new for node in unfolded.nodes for new in pairs.of(node))
    except UnknownError:
        return graph
    inputs = tuple(
        msgspec.structs.replace(item, value=_paired(item.value)) for item in graph.inputs
    )
    return msgspec.structs.replace(unfolded, inputs=inputs, nodes=nodes)


def _has_no_definition(node: Node, links: Links) -> bool:
    """True for other calls on complex numbers, which may be made of simpler ones, as ``fft2``."""
    read = any(links.values[name].dtype == COMPLEX for name in node.references())
    made = any(value is not None and value.dtype == COMPLEX for value in node.outputs)
    return (read or made) and node.op not in DEFINITIONS


def _paired(value: Value) -> Value:
    if value.dtype != COMPLEX:
        return value
    return msgspec.structs.replace(value, shape=(*value.shape, 2), dtype=PARTS)


class Pairs:
    """The nodes that compute with pairs. Values keep their names."""

    def __init__(self, graph: Graph) -> None:
        self._before, self._names = graph.values(), Names(graph)
        self._values = {i.value.name: _paired(i.value) for i in graph.inputs}
        self._new: list[Node] = []
        self._node = Node(name="", op="", arguments=())
        if any(self._is_complex(item.name) for item in graph.outputs if item.kind != "buffer"):
            raise UnknownError

    def of(self, node: Node) -> Sequence[Node]:
        """Nodes that replace a node."""
        read = any(self._is_complex(name) for name in node.references())
        made = any(v is not None and v.dtype == COMPLEX for v in node.outputs)
        if not read and not made:
            self._values |= {v.name: v for v in node.outputs if v is not None}
            return (node,)
        definition = DEFINITIONS.get(node.op)
        if definition is None or len(node.outputs) != 1:
            raise UnknownError
        self._new, self._node = [], node
        last = definition(self, bound(node))
        if last is None:
            raise UnknownError
        named = _paired(self._before[result(node)])
        if self._new and last.name == result(self._new[-1]):
            self._new[-1] = msgspec.structs.replace(self._new[-1], outputs=(named,))
        else:
            self._new.append(self._made("aten.alias.default", (last,), named))
        self._values[named.name] = named
        return self._new

    def call(self, op: str, *arguments: Argument) -> Ref:
        """Add a call of ATen; return what it gives."""
        made = self._made(op, arguments, None)
        (value,) = results_of(made, self._values)
        value = msgspec.structs.replace(value, name=self._names.free(f"{self._node.name}.pair"))
        self._new.append(msgspec.structs.replace(made, name=value.name, outputs=(value,)))
        self._values[value.name] = value
        return Ref(name=value.name)

    def is_complex(self, item: Argument) -> bool:
        """True if an argument was a complex value."""
        return isinstance(item, Ref) and self._is_complex(item.name)

    def rank(self, item: Argument) -> int:
        """How many axes a value had."""
        return len(self.sizes(item))

    def sizes(self, item: Argument) -> Shape:
        """The shape that a value had."""
        assert isinstance(item, Ref)  # noqa: S101
        return self._before[item.name].shape

    def shape_of(self, item: Ref) -> Shape:
        """The shape of a value now, of pairs with their axis."""
        return self._values[item.name].shape

    def shape(self) -> Shape:
        """The shape of the node's result before."""
        return self._before[result(self._node)].shape

    def parts(self, item: Argument) -> tuple[Ref, Ref]:
        """The real and the imaginary part of a pair."""
        real, imaginary = (self.call("aten.select.int", item, -1, index) for index in (0, 1))
        return real, imaginary

    def pair(self, real: Ref, imaginary: Ref) -> Ref:
        """The pair of two values."""
        parts = tuple(self.call("aten.unsqueeze.default", part, -1) for part in (real, imaginary))
        return self.call("aten.cat.default", parts, -1)

    def both_parts(self, item: Argument) -> Parts:
        """The parts of a pair; of a real value or number itself and nothing."""
        return self.parts(item) if self.is_complex(item) else (item, None)

    def like(self, part: Ref, other: Ref) -> Ref:
        """A part in the shape of the other one, which it broadcasts to."""
        shape = self._values[other.name].shape
        same = self._values[part.name].shape == shape
        return part if same else self.call("aten.expand.default", part, shape)

    def product(self, one: Parts, other: Parts) -> Ref:
        """The product of numbers with these parts, of which one is complex."""
        (a, b), (c, d) = one, other
        times = partial(self.call, "aten.mul.Tensor")
        if b is None or d is None:
            assert b is not None or d is not None  # noqa: S101
            parts = (times(a, d), times(a, c)) if b is None else (times(b, c), times(a, c))
            return self.pair(parts[1], parts[0])
        real = self.call("aten.sub.Tensor", times(a, c), times(b, d))
        return self.pair(real, self.call("aten.add.Tensor", times(a, d), times(b, c)))

    def _is_complex(self, name: str) -> bool:
        return self._before[name].dtype == COMPLEX

    def _made(self, op: str, arguments: tuple[Argument, ...], value: Value | None) -> Node:
        return msgspec.structs.replace(
            self._node, op=op, arguments=arguments, keywords={}, several=False,
            outputs=(value,) if value else (), absorbed=(),
        )  # fmt: skip
