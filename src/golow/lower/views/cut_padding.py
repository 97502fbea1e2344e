"""Peephole pass on padding: cuts a tensor before it is padded instead of afterwards."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import msgspec

from golow.lower.ir.graph import Graph, Node, Ref, Value
from golow.lower.ir.operator import Operator, record_of, written
from golow.lower.ir.rewriting import Links, Names, result, rewritten
from golow.lower.operators.expand import Expand
from golow.lower.operators.fill import Fill
from golow.lower.operators.pad import Pad
from golow.lower.operators.slice import Slice

Sides = tuple[tuple[int, int], ...]


def cut_before_padding(graph: Graph) -> Graph:
    """Let a range of a padded tensor be the same range of the tensor, or the number around it; with
    less padding if the range has some and nothing else reads the padded tensor. Padding by nothing
    goes, too."""
    while True:
        after = _cut_once(graph)
        if after is None:
            return graph
        graph = after


def _cut_once(graph: Graph) -> Graph | None:
    """The graph with one padding less before each range; None if there is none to remove."""
    links, names = Links(graph), Names(graph)
    replaced: dict[int, tuple[Node, ...]] = {}
    renamed: dict[str, str] = {}
    for position, node in enumerate(graph.nodes):
        cut = _cut(links, node)
        if cut is None or node.outputs[0] is None:
            continue
        new = list(_nodes(names, node, node.outputs[0], cut))
        if not new:
            renamed[result(node)] = renamed.get(cut.x.name, cut.x.name)
        replaced[position] = tuple(new)
    return rewritten(graph, replaced, renamed) if replaced else None


class _Cut(NamedTuple):
    """A range of a padded tensor: ``kept`` of x, whose shape is ``size``, with ``around`` elements
    of the value before and after it on each axis. kept: None if the range has nothing of x."""

    x: Ref
    size: tuple[int, ...]
    kept: Sides | None
    around: Sides
    value: float


def _cut(links: Links, node: Node) -> _Cut | None:
    """The range that a node takes of a padded tensor, if it takes one."""
    operator = record_of(node) if node.op in (Slice.op(), Pad.op()) else None
    if isinstance(operator, Pad) and not any((*operator.before, *operator.after)):
        shape = links.values[operator.x.name].shape
        return _Cut(operator.x, shape, tuple((0, n) for n in shape), ((0, 0),) * len(shape), 0.0)
    if not isinstance(operator, Slice | Pad):
        return None
    limits = _limits(links, operator)
    maker = links.made_by(operator.x, Pad.op())
    pad = None if maker is None else Pad.of(links.nodes[maker])
    if limits is None or pad is None or min((*pad.before, *pad.after)) < 0:
        return None
    shape = links.values[pad.x.name].shape
    if any(start >= stop for start, stop in limits):
        return None
    sizes = list(zip(limits, pad.before, shape, strict=True))
    kept = tuple(
        (max(0, start - before), min(size, stop - before)) for (start, stop), before, size in sizes
    )
    around = tuple(
        (max(0, before - start), max(0, stop - before - size))
        for (start, stop), before, size in sizes
    )
    full = all(start < stop for start, stop in kept)
    alone = links.only_reader(operator.x.name) is not None
    if full and any(map(any, around)) and not alone:
        return None
    return _Cut(pad.x, shape, kept if full else None, around, pad.value)


def _limits(links: Links, operator: Slice | Pad) -> Sides | None:
    """Where the range that a node takes begins and ends on each axis."""
    if isinstance(operator, Slice) and operator.step == 1:
        shape = links.values[operator.x.name].shape
        whole = [(0, size) for size in shape]
        whole[operator.axis] = operator.start, operator.stop
        return tuple(whole)
    if isinstance(operator, Pad) and max((*operator.before, *operator.after)) <= 0:
        shape = links.values[operator.x.name].shape
        sides = zip(operator.before, operator.after, shape, strict=True)
        return tuple((-before, size + after) for before, after, size in sides)
    return None


def _nodes(names: Names, node: Node, output: Value, cut: _Cut) -> Iterator[Node]:
    """The nodes that make the range, of which the last one makes the output; none if it is x."""
    steps = list(_steps(output, cut))
    x = cut.x
    for index, (operator, shape) in enumerate(steps):
        value = output
        if index < len(steps) - 1:
            name = names.free(f"{output.name}_cut")
            value = Value(name=name, shape=shape, dtype=output.dtype)
        if not isinstance(operator, Fill):
            operator = msgspec.structs.replace(operator, x=x)
        yield written(node, operator, outputs=(value,))
        x = Ref(name=value.name)


def _steps(output: Value, cut: _Cut) -> Iterator[tuple[Operator, tuple[int, ...]]]:
    """Steps that produce the range, one after the other, and the shapes of their results."""
    if cut.kept is None:
        one = (1,) * len(output.shape)
        yield Fill(shape=one, value=cut.value, dtype=output.dtype), one
        yield Expand(x=cut.x, shape=output.shape), output.shape
        return
    shape = list(cut.size)
    for axis, (start, stop) in enumerate(cut.kept):
        if stop - start < shape[axis]:
            shape[axis] = stop - start
            yield Slice(x=cut.x, axis=axis, start=start, stop=stop, step=1), tuple(shape)
    if any(map(any, cut.around)):
        before, after = zip(*cut.around, strict=True)
        yield Pad(x=cut.x, before=before, after=after, value=cut.value), output.shape
