"""Unrolled loops computed at once: functions that a network calls for each step of a loop, on that
step's part of larger values, become one function of the whole values.

``stack([f(x[t], y[t]) for t in range(n)])`` is f of x and y with the axis of t in front. Products
of matrices become one with more matrices, and one of more rows where all steps share the right one.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from collections.abc import Set as AbstractSet
from typing import Any

import msgspec

from golow.lower.ir.clean_up import eliminate_dead_code
from golow.lower.ir.graph import Graph, Node, Ref, Value
from golow.lower.ir.operator import Operator, record_of, written
from golow.lower.ir.rewriting import Links, Names, rewritten
from golow.lower.operators.activation import Activate
from golow.lower.operators.binary import Binary
from golow.lower.operators.concatenate import Concatenate
from golow.lower.operators.expand import Expand
from golow.lower.operators.linear import Linear
from golow.lower.operators.matrix_product import MatrixProduct
from golow.lower.operators.permute import Permute
from golow.lower.operators.pointwise import Pointwise
from golow.lower.operators.reduce import Reduce
from golow.lower.operators.reshape import Reshape
from golow.lower.operators.slice import Slice

FEWEST = 4  # steps, below which views for every step cost less than they save
VIEWS = (Slice, Reshape, Expand, Permute)


def compute_steps_at_once(graph: Graph) -> Graph:
    """Replace concatenations of what equal functions give for each step of an unrolled loop."""
    links, names = Links(graph), Names(graph)
    replaced: dict[int, tuple[Node, ...]] = {}
    for position, node in enumerate(graph.nodes):
        joined = Concatenate.of(node)
        if joined is None or len(joined.parts) < FEWEST:
            continue
        stack = Stack(links, names, node)
        found = stack.of([part.name for part in joined.parts])
        if found is not None and stack.computes:
            shape = links.values[joined.parts[0].name].shape
            order = [*range(1, joined.axis + 1), 0, *range(joined.axis + 1, len(shape) + 1)]
            turned = stack.add(Permute(x=found, order=tuple(order)), _ordered(stack, found, order))
            output = node.outputs[0]
            assert output is not None  # noqa: S101 - a concatenation has one result
            last = written(node, Reshape(x=turned, shape=output.shape))
            replaced[position] = (*stack.nodes, last)
    return eliminate_dead_code(rewritten(graph, replaced)) if replaced else graph


class Stack:
    """Values of all steps, stacked along a new first axis. nodes: what computes them, in the layer
    of ``beside``. computes: whether there is more than views. barred: values that stay."""

    def __init__(
        self, links: Links, names: Names, beside: Node, barred: AbstractSet[str] = frozenset()
    ) -> None:
        self._links, self._names, self._barred = links, names, barred
        self._beside = msgspec.structs.replace(beside, absorbed=())
        self._known: dict[tuple[str, ...], Ref | None] = {}
        self._made: dict[str, Value] = {}
        self._views: dict[tuple[object, ...], str] = {}
        self._equal: dict[str, str] = {}
        self.nodes: list[Node] = []
        self.computes = False

    def of(self, steps: Sequence[str]) -> Ref | None:
        """The stacked values of that name, [steps, ...]; None if no function of whole values gives
        them."""
        key = tuple(map(self.first, steps))
        if key not in self._known:
            self._known[key] = self._found(key)
        return self._known[key]

    def add(self, operator: Operator, shape: Sequence[int], dtype: str = "float32") -> Ref:
        """Add a node for a value of this shape."""
        name = self._names.free(f"{self._beside.name}_steps")
        value = Value(name=name, shape=tuple(shape), dtype=dtype)
        self.nodes.append(written(self._beside, operator, name=name, outputs=(value,)))
        self._made[name] = value
        return Ref(name=name)

    def value(self, reference: Ref) -> Value:
        """A stacked value, or one of the graph."""
        return self._made.get(reference.name) or self._links.values[reference.name]

    def shape(self, reference: Ref) -> tuple[int, ...]:
        """The shape of such a value."""
        return self.value(reference).shape

    def first(self, name: str) -> str:
        """The first value that is the same view: each step of a loop has views of its own."""
        if name not in self._equal:
            maker = self._links.maker.get(name)
            record = None if maker is None else record_of(self._links.nodes[maker])
            self._equal[name] = name
            if isinstance(record, VIEWS):
                view = msgspec.structs.replace(record, x=Ref(name=self.first(record.x.name)))
                self._equal[name] = self._views.setdefault((type(view), view), name)
        return self._equal[name]

    def _found(self, steps: tuple[str, ...]) -> Ref | None:
        values = [self._links.values[name] for name in steps]
        shape, dtype = values[0].shape, values[0].dtype
        alike = all((value.shape, value.dtype) == (shape, dtype) for value in values)
        if not alike or not self._barred.isdisjoint(steps):
            return None
        if len(set(steps)) == 1:
            return self._shared(steps[0], len(steps))
        makers = [self._links.maker.get(name) for name in steps]
        nodes = [self._links.nodes[maker] for maker in makers if maker is not None]
        if len(nodes) < len(steps) or len({node.op for node in nodes}) > 1:
            return None
        records = [record_of(node) for node in nodes]
        rule = RULES.get(type(records[0]))
        if rule is None:
            return None
        if type(records[0]) not in VIEWS:
            if any(self._links.only_reader(name) is None for name in steps):
                return None  # it would be computed twice
            self.computes = True
        return rule(self, records, (len(steps), *shape), dtype)

    def _shared(self, name: str, count: int) -> Ref:
        value = self._links.values[name]
        first = self.add(Reshape(x=Ref(name=name), shape=(1, *value.shape)), (1, *value.shape),
                         value.dtype)  # fmt: skip
        shape = (count, *value.shape)
        return self.add(Expand(x=first, shape=shape), shape, value.dtype)


# ---------------------------------------------------------------- one operator of all steps


def _ordered(stack: Stack, stacked: Ref, order: Sequence[int]) -> tuple[int, ...]:
    shape = stack.shape(stacked)
    return tuple(shape[axis] for axis in order)


def _views(stack: Stack, records: Any, shape: tuple[int, ...], dtype: str) -> Ref | None:
    """Stack reshapes, or expansions, to the same shape."""
    source = stack.of([record.x.name for record in records])
    if source is None:
        return None
    if isinstance(records[0], Expand):  # new axes come after the steps
        inner = stack.shape(source)
        wide = (inner[0], *[1] * (len(shape) - len(inner)), *inner[1:])
        source = stack.add(Reshape(x=source, shape=wide), wide, dtype)
        return stack.add(Expand(x=source, shape=shape), shape, dtype)
    return stack.add(Reshape(x=source, shape=shape), shape, dtype)


def _permuted(stack: Stack, records: Any, shape: tuple[int, ...], dtype: str) -> Ref | None:
    if len({record.order for record in records}) > 1:
        return None
    source = stack.of([record.x.name for record in records])
    order = (0, *(axis + 1 for axis in records[0].order))
    return None if source is None else stack.add(Permute(x=source, order=order), shape, dtype)


def _sliced(stack: Stack, records: Any, shape: tuple[int, ...], dtype: str) -> Ref | None:
    """Stack parts of one value, one after the other; or the same range of each step's value."""
    first = records[0]
    axis, width = first.axis, first.stop - first.start
    if len({(record.axis, record.stop - record.start, record.step) for record in records}) > 1:
        return None
    sources = {stack.first(record.x.name) for record in records}
    if len(sources) > 1:
        source = None
        if len({record.start for record in records}) == 1:
            source = stack.of([record.x.name for record in records])
        if source is None:
            return None
        return stack.add(msgspec.structs.replace(first, x=source, axis=axis + 1), shape, dtype)
    whole, count = stack.shape(first.x), len(records)
    in_order = all(record.start == width * step for step, record in enumerate(records))
    if not in_order or first.step != 1 or width * count != whole[axis]:
        return None
    apart = (*whole[:axis], count, width, *whole[axis + 1 :])
    split = stack.add(Reshape(x=first.x, shape=apart), apart, dtype)
    order = (axis, *(i for i in range(len(apart)) if i != axis))
    return stack.add(Permute(x=split, order=order), shape, dtype)


def _elementwise(stack: Stack, records: Any, shape: tuple[int, ...], dtype: str) -> Ref | None:
    """Stack a function of elements, whose operands broadcast."""
    fields = [msgspec.structs.asdict(record) for record in records]
    changed: dict[str, Any] = {}
    for name, item in fields[0].items():
        given = [field[name] for field in fields]
        if isinstance(item, tuple):
            operands = [_operand(stack, each, shape) for each in zip(*given, strict=True)]
            if None in operands:
                return None
            changed[name] = tuple(operands)
        else:
            found = _operand(stack, given, shape)
            if found is None and item is not None:
                return None
            changed[name] = found
    return stack.add(msgspec.structs.replace(records[0], **changed), shape, dtype)


def _operand(stack: Stack, given: Sequence[Any], shape: tuple[int, ...]) -> Any:
    """A number, or any other field, that is the same in all steps; a value of all steps, with axes
    of one where a step's value has fewer than the result; None for what differs."""
    if not all(isinstance(item, Ref) for item in given):
        return given[0] if all(item == given[0] for item in given) else None
    stacked = stack.of([item.name for item in given])
    if stacked is None:
        return None
    inner = stack.shape(stacked)
    if len(inner) == len(shape):
        return stacked
    wide = (inner[0], *[1] * (len(shape) - len(inner)), *inner[1:])
    return stack.add(Reshape(x=stacked, shape=wide), wide, stack.value(given[0]).dtype)


def _reduced(stack: Stack, records: Any, shape: tuple[int, ...], dtype: str) -> Ref | None:
    first = records[0]
    others = {msgspec.structs.replace(record, x=first.x) for record in records}
    source = stack.of([record.x.name for record in records]) if len(others) == 1 else None
    if source is None:
        return None
    axes = tuple(axis + 1 for axis in first.axes)
    return stack.add(msgspec.structs.replace(first, x=source, axes=axes), shape, dtype)


def _linear(stack: Stack, records: Any, shape: tuple[int, ...], dtype: str) -> Ref | None:
    """Stack a layer that all steps share."""
    first = records[0]
    others = {msgspec.structs.replace(record, x=first.x) for record in records}
    if len(others) > 1 or first.residual is not None:
        return None
    source = stack.of([record.x.name for record in records])
    if source is None:
        return None
    return stack.add(msgspec.structs.replace(first, x=source), shape, dtype)


def _product(stack: Stack, records: Any, shape: tuple[int, ...], dtype: str) -> Ref | None:
    """Stack products of matrices: more matrices, or more rows for a shared right one."""
    first = records[0]
    if any(record.added is not None or record.factor != first.factor for record in records):
        return None
    left = stack.of([record.a.name for record in records])
    if left is None:
        return None
    if len(shape) == 3 and len({record.b.name for record in records}) == 1:
        rows, columns = math.prod(shape[:-1]), shape[-1]
        inner = stack.shape(left)[-1]
        flat = stack.add(Reshape(x=left, shape=(rows, inner)), (rows, inner), dtype)
        made = stack.add(msgspec.structs.replace(first, a=flat), (rows, columns), dtype)
        return stack.add(Reshape(x=made, shape=shape), shape, dtype)
    right = stack.of([record.b.name for record in records])
    if right is None:
        return None
    batch = math.prod(shape[:-2])
    a, b = (_matrices(stack, operand, batch, dtype) for operand in (left, right))
    whole = (batch, *shape[-2:])
    made = stack.add(msgspec.structs.replace(first, a=a, b=b), whole, dtype)
    return stack.add(Reshape(x=made, shape=shape), shape, dtype)


def _matrices(stack: Stack, operand: Ref, batch: int, dtype: str) -> Ref:
    shape = (batch, *stack.shape(operand)[-2:])
    return stack.add(Reshape(x=operand, shape=shape), shape, dtype)


Rule = Callable[[Stack, Any, tuple[int, ...], str], "Ref | None"]
RULES: dict[type, Rule] = {
    Reshape: _views,
    Expand: _views,
    Permute: _permuted,
    Slice: _sliced,
    Activate: _elementwise,
    Binary: _elementwise,
    Pointwise: _elementwise,
    Reduce: _reduced,
    Linear: _linear,
    MatrixProduct: _product,
}
