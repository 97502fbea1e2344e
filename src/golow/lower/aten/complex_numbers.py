"""Complex lowering: replaces complex numbers by pairs of real ones, as rotary embeddings have them:
a complex value of a shape becomes a real one with a further axis of two, its real and its imaginary
parts. The vendor's libraries compute with real numbers alone."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import msgspec

from golow.lower.ir.graph import Argument, Graph, Node, Ref, Symbol, Value
from golow.lower.ir.rewriting import Names, result
from golow.lower.ir.spelling import bound
from golow.lower.ir.verify import results_of

COMPLEX = "complex64"
PARTS = "float32"
Shape = tuple[int, ...]
Parts = tuple[Argument, Ref | None]
"""The real part and the imaginary one; nothing in place of that of a real number."""


def pair_complex_numbers(graph: Graph) -> Graph:
    """Compute with pairs; leave the graph as it is if an operation on complex numbers has no
    definition here, which is then refused by its name."""
    values = graph.values()
    if not any(value.dtype == COMPLEX for value in values.values()):
        return graph
    try:
        pairs = _Pairs(graph)
        nodes = tuple(new for node in graph.nodes for new in pairs.of(node))
    except _UnknownError:
        return graph
    inputs = tuple(
        msgspec.structs.replace(item, value=_paired(item.value)) for item in graph.inputs
    )
    return msgspec.structs.replace(graph, inputs=inputs, nodes=nodes)


class _UnknownError(Exception):
    """An operation on complex numbers that this pass does not know."""


def _paired(value: Value) -> Value:
    if value.dtype != COMPLEX:
        return value
    return msgspec.structs.replace(value, shape=(*value.shape, 2), dtype=PARTS)


class _Pairs:
    """The nodes that compute with pairs. Values keep their names."""

    def __init__(self, graph: Graph) -> None:
        self._before, self._names = graph.values(), Names(graph)
        self._values = {i.value.name: _paired(i.value) for i in graph.inputs}
        self._new: list[Node] = []
        self._node = Node(name="", op="", arguments=())
        if any(self._is_complex(item.name) for item in graph.outputs if item.kind != "buffer"):
            raise _UnknownError

    def of(self, node: Node) -> Sequence[Node]:
        """Nodes that replace a node."""
        read = any(self._is_complex(name) for name in node.references())
        made = any(v is not None and v.dtype == COMPLEX for v in node.outputs)
        if not read and not made:
            self._values |= {v.name: v for v in node.outputs if v is not None}
            return (node,)
        definition = DEFINITIONS.get(node.op)
        if definition is None or len(node.outputs) != 1:
            raise _UnknownError
        self._new, self._node = [], node
        last = definition(self, bound(node))
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
        assert isinstance(item, Ref)  # noqa: S101
        return len(self._before[item.name].shape)

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


Given = dict[str, Argument]
Definition = Callable[[_Pairs, Given], Ref]

# ---------------------------------------------------------------- definitions


def _same(pairs: _Pairs, given: Given) -> Ref:
    item = given["self"]
    assert isinstance(item, Ref)  # noqa: S101
    return item


def _converted(pairs: _Pairs, given: Given) -> Ref:
    """A conversion to complex numbers of complex ones."""
    dtype = given["dtype"]
    wanted = isinstance(dtype, Symbol) and dtype.name == COMPLEX
    if not pairs.is_complex(given["self"]) or not (wanted or dtype is None):
        raise _UnknownError
    return _same(pairs, given)


def _product(pairs: _Pairs, given: Given) -> Ref:
    one, other = given["self"], given["other"]
    if not (pairs.is_complex(one) and pairs.is_complex(other)):
        real, pair = (one, other) if pairs.is_complex(other) else (other, one)
        wide = pairs.call("aten.unsqueeze.default", real, -1) if isinstance(real, Ref) else real
        if not isinstance(real, Ref | int | float):
            raise _UnknownError
        return pairs.call("aten.mul.Tensor", pair, wide)
    return pairs.product(pairs.both_parts(one), pairs.both_parts(other))


def _sum(op: str, pairs: _Pairs, given: Given) -> Ref:
    one, other = given["self"], given["other"]
    if given.get("alpha", 1) != 1:
        raise _UnknownError
    if pairs.is_complex(one) and pairs.is_complex(other):
        return pairs.call(op, one, other)
    (a, b), (c, d) = (pairs.both_parts(item) for item in (one, other))
    real = pairs.call(op, a, c)
    if d is None:
        assert b is not None  # noqa: S101
        return pairs.pair(real, pairs.like(b, real))
    turned = d if op == "aten.add.Tensor" else pairs.call("aten.neg.default", d)
    return pairs.pair(real, pairs.like(turned, real))


def _quotient(pairs: _Pairs, given: Given) -> Ref:
    one, other = given["self"], given["other"]
    if not pairs.is_complex(other):
        wide = pairs.call("aten.unsqueeze.default", other, -1) if isinstance(other, Ref) else other
        return pairs.call("aten.div.Tensor", one, wide)
    return pairs.product(pairs.both_parts(one), pairs.parts(_inverse(pairs, {"self": other})))


def _inverse(pairs: _Pairs, given: Given) -> Ref:
    squared = pairs.call("aten.mul.Tensor", given["self"], given["self"])
    size = pairs.call("aten.sum.dim_IntList", squared, (-1,), True)
    return pairs.call("aten.div.Tensor", _conjugate(pairs, given), size)


def _subtracted(pairs: _Pairs, given: Given) -> Ref:
    """Trace of ``other - self``."""
    if pairs.is_complex(given["other"]) or given.get("alpha", 1) != 1:
        raise _UnknownError
    real, imaginary = pairs.parts(_negative(pairs, given))
    real = pairs.call("aten.add.Tensor", real, given["other"])
    return pairs.pair(real, pairs.like(imaginary, real))


def _sign(pairs: _Pairs, given: Given) -> Ref:
    """z / |z|, and 0 where z is 0."""
    size = pairs.call("aten.unsqueeze.default", _size(pairs, given), -1)
    none = pairs.call("aten.eq.Scalar", size, 0)
    size = pairs.call("aten.masked_fill.Scalar", size, none, 1.0)
    return pairs.call("aten.div.Tensor", given["self"], size)


def _conjugate(pairs: _Pairs, given: Given) -> Ref:
    real, imaginary = pairs.parts(given["self"])
    return pairs.pair(real, pairs.call("aten.neg.default", imaginary))


def _negative(pairs: _Pairs, given: Given) -> Ref:
    return pairs.call("aten.neg.default", given["self"])


def _size(pairs: _Pairs, given: Given) -> Ref:
    squared = pairs.call("aten.mul.Tensor", given["self"], given["self"])
    return pairs.call("aten.sqrt.default", pairs.call("aten.sum.dim_IntList", squared, (-1,)))


def _part(index: int, pairs: _Pairs, given: Given) -> Ref:
    return pairs.call("aten.select.int", given["self"], -1, index)


def _polar(pairs: _Pairs, given: Given) -> Ref:
    parts = (
        pairs.call(
            "aten.mul.Tensor", given["abs"], pairs.call(f"aten.{name}.default", given["angle"])
        )
        for name in ("cos", "sin")
    )
    return pairs.pair(*parts)


def _of_parts(pairs: _Pairs, given: Given) -> Ref:
    real, imaginary = given["real"], given["imag"]
    assert isinstance(real, Ref) and isinstance(imaginary, Ref)  # noqa: S101
    return pairs.pair(real, imaginary)


def _reshaped(pairs: _Pairs, given: Given) -> Ref:
    return pairs.call("aten.reshape.default", given["self"], (*pairs.shape(), 2))


def _expanded(pairs: _Pairs, given: Given) -> Ref:
    return pairs.call("aten.expand.default", given["self"], (*pairs.shape(), 2))


def _along(op: str, names: Sequence[str], pairs: _Pairs, given: Given) -> Ref:
    """An operation along axes, which are counted from the first one. A new axis counts as one."""
    axes = pairs.rank(given["self"]) + (op == "aten.unsqueeze.default")

    def counted(name: str, item: Any) -> Any:
        if name not in ("dim", "dim0", "dim1", "dims"):
            return item
        return tuple(axis % axes for axis in item) if isinstance(item, tuple) else item % axes

    found = [counted(name, given[name]) for name in names]
    last = (axes,) if op == "aten.permute.default" else ()
    return pairs.call(op, given["self"], *((*found[0], *last),) if last else found)


ALONG = {
    "aten.unsqueeze.default": ("dim",),
    "aten.transpose.int": ("dim0", "dim1"),
    "aten.permute.default": ("dims",),
    "aten.slice.Tensor": ("dim", "start", "end", "step"),
    "aten.select.int": ("dim", "index"),
}
DEFINITIONS: dict[str, Definition] = {
    "aten.view_as_complex.default": _same,
    "aten.view_as_real.default": _same,
    "aten._conj.default": _conjugate,
    "aten._conj_physical.default": _conjugate,
    "aten.conj.default": _conjugate,
    "aten.mul.Tensor": _product,
    "aten.add.Tensor": partial(_sum, "aten.add.Tensor"),
    "aten.sub.Tensor": partial(_sum, "aten.sub.Tensor"),
    "aten.div.Tensor": _quotient,
    "aten.rsub.Scalar": _subtracted,
    "aten.rsub.Tensor": _subtracted,
    "aten.reciprocal.default": _inverse,
    "aten.sgn.default": _sign,
    "aten.neg.default": _negative,
    "aten.abs.default": _size,
    "aten.real.default": partial(_part, 0),
    "aten.imag.default": partial(_part, 1),
    "aten.polar.default": _polar,
    "aten.complex.default": _of_parts,
    "aten.reshape.default": _reshaped,
    "aten.view.default": _reshaped,
    "aten._unsafe_view.default": _reshaped,
    "aten.flatten.using_ints": _reshaped,
    "aten.expand.default": _expanded,
    "aten.to.dtype": _converted,
    "aten.to.device": _converted,
    "aten._to_copy.default": _converted,
}
DEFINITIONS.update({op: partial(_along, op, names) for op, names in ALONG.items()})
KEPT = ("clone", "alias", "detach", "resolve_conj", "resolve_neg", "contiguous")
DEFINITIONS.update(dict.fromkeys((f"aten.{name}.default" for name in KEPT), _same))
