"""Integers that follow from positions in a text alone: which places rows are written to, and which
keys a mask lets a row see.

Everything is worked out symbolically from the graph, so an answer holds at every position.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import msgspec

from golow.lower.aten.canonical import canonicalise
from golow.lower.aten.decomposition import decompose
from golow.lower.aten.scalar_constants import inline_numbers
from golow.lower.ir.clean_up import eliminate_dead_code
from golow.lower.ir.graph import Graph, GraphOutput, Node, Ref, Value
from golow.lower.ir.operator import Operator, record_of
from golow.lower.ir.rewriting import Links
from golow.lower.operators.binary import Binary
from golow.lower.operators.copy import Copy
from golow.lower.operators.expand import Expand
from golow.lower.operators.fill import Fill
from golow.lower.operators.iota import Iota
from golow.lower.operators.permute import Permute
from golow.lower.operators.pointwise import Pointwise
from golow.lower.operators.reshape import Reshape
from golow.lower.operators.slice import Slice

VOCABULARY = (decompose, canonicalise, inline_numbers)
MOST_NODES = 200  # of what makes an index or a mask
EXPAND_AS = "aten.expand_as.default"
INTEGERS = ("int64", "int32")


class Places(NamedTuple):
    """Integers ``constant + steps[0] * i0 + steps[1] * i1 + ... + times * position``. Steps along
    axes of size one are 0. position: an input of the graph, empty if times is 0. It has one
    element, or one for each text: then that of the text ``texts[0] * i0 + texts[1] * i1 + ...``."""

    constant: int
    steps: tuple[int, ...]
    position: str = ""
    times: int = 0
    texts: tuple[int, ...] = ()

    def axes(self, change: Callable[[tuple[int, ...]], tuple[int, ...]]) -> Places:
        """Return the integers in other axes. change: of what is given for each axis."""
        return self._replace(steps=change(self.steps), texts=change(self.texts))


class Condition(NamedTuple):
    """Truth values: all of these integers are at least 0. None of them: always true."""

    all_of: tuple[Places, ...]
    rank: int


Known = Places | Condition


class Seen(NamedTuple):
    """A mask in which row i sees the keys up to ``position + i``. position: an input of the graph;
    if it has several elements, each belongs to a text along the first of four axes. window: if not
    0, only this many of these keys are seen, the last ones."""

    position: str
    window: int


def places_of(graph: Graph, name: str) -> Places | None:
    """Return what an index holds; None for anything but the integers of `Places`."""
    found = _known(graph, name)
    return found if isinstance(found, Places) else None


def seen_by(graph: Graph, name: str) -> Seen | None:
    """Return what a mask [..., L, S] lets rows see, if that is what `Seen` states at every position
    from 0 to S - L; None for another mask."""
    found, shape = _known(graph, name), graph.values()[name].shape
    if not isinstance(found, Condition) or len(shape) < 2:
        return None
    rows, keys = shape[-2:]
    steps = (*(0,) * (len(shape) - 2), int(rows > 1), -1)
    left = {item for item in found.all_of if _least(item, shape, keys - rows) < 0}
    position = next((item.position for item in left), "")
    ahead = Places(0, steps, position, 1, _texts(graph, position, shape))
    if not position or ahead not in left or len(left) > 2:
        return None
    if left == {ahead}:
        return Seen(position, window=0)
    (other,) = left - {ahead}
    window = other.constant + 1  # of 0 and less, no key is seen
    behind = Places(window - 1, tuple(-step for step in steps), position, -1, ahead.texts)
    return Seen(position, window) if window > 0 and other == behind else None


def _texts(graph: Graph, position: str, shape: Sequence[int]) -> tuple[int, ...]:
    """Return the steps from text to text of the positions of a mask [B, H, L, S]."""
    value = graph.values().get(position)
    several = value is not None and math.prod(value.shape) > 1 and len(shape) == 4
    return (int(several), *(0,) * (len(shape) - 1))


def _least(item: Places, shape: Sequence[int], last: int) -> int:
    """The least of these integers, for positions from 0 to the last."""
    sizes = zip(item.steps, shape, strict=True)
    least = sum(min(0, step * (size - 1)) for step, size in sizes)
    return item.constant + least + min(0, item.times * last)


# ---------------------------------------------------------------- the values behind it


def _known(graph: Graph, name: str) -> Known | None:
    part = _behind(graph, name)
    if part is None:
        return None
    for change in VOCABULARY:
        part = change(part)
    part = eliminate_dead_code(part)
    values = part.values()
    known: dict[str, Known] = {
        item.value.name: _given(item.value)
        for item in part.inputs
        if math.prod(item.value.shape[1:]) == 1 and item.value.dtype in INTEGERS
    }
    for node in part.nodes:
        record, output = record_of(node), node.outputs[0] if len(node.outputs) == 1 else None
        found = None if record is None or output is None else _step(record, output, known, values)
        if found is not None and output is not None:
            known[output.name] = found
    return known.get(part.outputs[0].name)


def _behind(graph: Graph, name: str) -> Graph | None:
    """The part of the graph that makes a value from inputs of the graph; None if it is large."""
    links = Links(graph)
    wanted, nodes, inputs = [name], dict[int, Node](), set[str]()
    while wanted:
        one = wanted.pop()
        maker = links.maker.get(one)
        if maker is None:
            inputs.add(one)
        elif maker not in nodes:
            nodes[maker] = _to_shape(links.nodes[maker])
            wanted += nodes[maker].references()
        if len(nodes) > MOST_NODES:
            return None
    return Graph(
        name=graph.name,
        mode=graph.mode,
        inputs=tuple(item for item in graph.inputs if item.value.name in inputs),
        nodes=tuple(nodes[position] for position in sorted(nodes)),
        outputs=(GraphOutput(name=name, kind="output", target="0"),),
    )


def _to_shape(node: Node) -> Node:
    """An expansion to the shape of a tensor, without the tensor: in the later layers of a network,
    what makes a row that is written is large."""
    (made, *_) = node.outputs
    if node.op != EXPAND_AS or made is None:
        return node
    call = {"op": "aten.expand.default", "arguments": (node.arguments[0], made.shape)}
    return msgspec.structs.replace(node, **call)


def _given(value: Value) -> Places:
    """Return a position, or one for each text along the first axis."""
    alike = (0,) * len(value.shape)
    texts = (1, *alike[1:]) if math.prod(value.shape) > 1 else alike
    return Places(0, alike, value.name, 1, texts)


def _plain(constant: int, steps: tuple[int, ...] = ()) -> Places:
    """Return integers that follow from no position."""
    return Places(constant, steps, texts=(0,) * len(steps))


# ---------------------------------------------------------------- one operation


def _step(
    record: Operator, output: Value, known: dict[str, Known], values: dict[str, Value]
) -> Known | None:
    match record:
        case Iota(start=int(), step=int()) if output.dtype in INTEGERS:
            return _plain(int(record.start), (int(record.step) if record.count > 1 else 0,))
        case Fill(value=1.0, dtype="bool"):
            return Condition((), len(record.shape))
        case Copy():
            return known.get(record.x.name)
        case Reshape() | Expand() | Permute() | Slice():
            source = known.get(record.x.name)
            return None if source is None else _viewed(record, source, values[record.x.name].shape)
        case Pointwise():
            return _computed(record.function, record.operands, output, known)
        case Binary(activation=None):
            return _computed(record.function, (record.a, record.b), output, known)
    return None


def _viewed(
    record: Reshape | Expand | Permute | Slice, source: Known, shape: Sequence[int]
) -> Known | None:
    if isinstance(source, Condition):
        items = [_viewed(record, item, shape) for item in source.all_of]
        rank = len(record.order) if isinstance(record, Permute) else len(_shape(record, shape))
        found = tuple(item for item in items if isinstance(item, Places))
        return Condition(found, rank) if len(found) == len(items) else None
    match record:
        case Permute():
            return source.axes(lambda steps: tuple(steps[axis] for axis in record.order))
        case Slice():
            return _sliced(record, source, _shape(record, shape)[record.axis])
        case Expand():
            return _wide(source, len(record.shape))
        case Reshape():
            if [n for n in shape if n != 1] != [n for n in record.shape if n != 1]:
                return None
            return source.axes(lambda steps: _reshaped(steps, shape, record.shape))


def _sliced(record: Slice, source: Places, size: int) -> Places | None:
    axis = record.axis
    if record.start * source.texts[axis]:
        return None  # positions of some texts only
    moved = source.constant + record.start * source.steps[axis]
    step = record.step if size > 1 else 0
    found = source.axes(lambda steps: (*steps[:axis], steps[axis] * step, *steps[axis + 1 :]))
    return found._replace(constant=moved)


def _reshaped(
    steps: tuple[int, ...], shape: Sequence[int], wanted: Sequence[int]
) -> tuple[int, ...]:
    """Steps where axes of size one come or go."""
    left = iter(step for step, size in zip(steps, shape, strict=True) if size != 1)
    return tuple(next(left) if size != 1 else 0 for size in wanted)


def _shape(record: Reshape | Expand | Slice, shape: Sequence[int]) -> tuple[int, ...]:
    if not isinstance(record, Slice):
        return record.shape
    size = len(range(record.start, record.stop, record.step))
    return (*shape[: record.axis], size, *shape[record.axis + 1 :])


def _computed(
    function: str, given: Sequence[object], output: Value, known: dict[str, Known]
) -> Known | None:
    operands: list[Known] = []
    for operand in given:
        found = known.get(operand.name) if isinstance(operand, Ref) else _number(operand)
        if found is None:
            return None
        operands.append(found)
    rank = len(output.shape)
    if function == "convert" and output.dtype in (*INTEGERS, "bool"):
        same = isinstance(operands[0], Condition) == (output.dtype == "bool")
        return operands[0] if same else None
    if all(isinstance(item, Condition) for item in operands):
        return _both(function, operands, rank)
    if len(operands) != 2 or not all(isinstance(item, Places) for item in operands):
        return None
    a, b = (_wide(item, rank) for item in operands if isinstance(item, Places))
    if function in SUMS and output.dtype in INTEGERS:
        return SUMS[function](a, b)
    if function in COMPARISONS:
        least = COMPARISONS[function](a, b)
        return None if least is None else Condition((least,), rank)
    return None


def _number(operand: object) -> Known | None:
    if operand is True:
        return Condition((), 0)
    return _plain(operand) if type(operand) is int else None


def _both(function: str, operands: Sequence[Known], rank: int) -> Condition | None:
    if function not in ("logical_and", "bitwise_and"):
        return None
    items = [item for each in operands if isinstance(each, Condition) for item in each.all_of]
    return Condition(tuple(dict.fromkeys(_wide(item, rank) for item in items)), rank)


def _wide(item: Places, rank: int) -> Places:
    """With axes in front, along which nothing changes."""
    return item.axes(lambda steps: (*(0,) * (rank - len(steps)), *steps))


def _sum(a: Places, b: Places, sign: int = 1) -> Places | None:
    (position, texts), other = ((item.position, item.texts) for item in (a, b))
    if not position:
        position, texts = other
    elif b.position and other != (position, texts):
        return None
    steps = tuple(x + sign * y for x, y in zip(a.steps, b.steps, strict=True))
    constant, times = a.constant + sign * b.constant, a.times + sign * b.times
    return Places(constant, steps, position, times, texts) if times else _plain(constant, steps)


def _difference(a: Places, b: Places) -> Places | None:
    return _sum(a, b, -1)


def _less(a: Places, b: Places) -> Places | None:
    found = _difference(b, a)
    return None if found is None else found._replace(constant=found.constant - 1)


Rule = Callable[[Places, Places], Places | None]
SUMS: dict[str, Rule] = {"add": _sum, "subtract": _difference}
COMPARISONS: dict[str, Rule] = {  # the integers that are at least 0 where it holds
    "less_equal": lambda a, b: _difference(b, a),
    "greater_equal": _difference,
    "less": _less,
    "greater": lambda a, b: _less(b, a),
}
