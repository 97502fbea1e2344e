"""Concatenation of padded sums: joins what was padded with zeros and then added. The gradients of
slices arrive so: three of them make up the gradient of a projection to query, key and value."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from golow.lower.analysis.ranges import Ranges, View, of_part, seen, shape_after
from golow.lower.ir.graph import Graph, Node, Ref, Value
from golow.lower.ir.operator import Operator, record_of, written
from golow.lower.ir.rewriting import Links, Names, absorbing, result, rewritten
from golow.lower.operators.binary import Binary
from golow.lower.operators.concatenate import Concatenate
from golow.lower.operators.expand import Expand
from golow.lower.operators.fill import Fill
from golow.lower.operators.pad import Pad
from golow.lower.operators.permute import Permute
from golow.lower.operators.reshape import Reshape

ANY = Ref(name="")  # the operand of views that are compared with others


def join_padded_parts(graph: Graph) -> Graph:
    """Make a sum of tensors that were padded with zeros along one axis, and do not overlap, one
    concatenation: of the tensors, and of zeros elsewhere. Those that cover the
    same range are added before. What else the sum has is added to the whole.

    Each padded tensor would be as large as the whole, and be written and read again, so that two of
    them are enough. The result is the same but for the sign of zeros, and for the order in which
    two or more further terms are added.
    """
    while True:
        replaced = _Sums(graph).replaced()
        if not replaced:
            return graph
        graph = rewritten(graph, replaced)


class _Padded(NamedTuple):
    """A term of a sum: zeros around views of x, and further views of that whole. ranges: the zeros
    before, x and the zeros after. made_by: positions of the nodes."""

    x: Ref
    views: tuple[View, ...]
    ranges: Ranges
    further: tuple[View, ...]
    made_by: tuple[int, ...]

    @property
    def place(self) -> tuple[int, int]:
        """Where x begins and ends."""
        before, size, _ = self.ranges.sizes
        return before, before + size


class _Sums:
    """The sums of a graph, as trees of additions that read one another and that nothing else
    reads."""

    def __init__(self, graph: Graph) -> None:
        self._links, self._names = Links(graph), Names(graph)
        self._sums: dict[int, Binary] = {}
        for position, node in enumerate(graph.nodes):
            add = Binary.of(node)
            if add is not None and self._adds_alike(add, node):
                self._sums[position] = add

    def _adds_alike(self, add: Binary, node: Node) -> bool:
        plain = add.function == "add" and add.activation is None and add.a != add.b
        if not plain or not isinstance(add.b, Ref) or node.outputs[0] is None:
            return False
        values = self._links.values
        return values[add.a.name].shape == values[add.b.name].shape == node.outputs[0].shape

    def replaced(self) -> dict[int, tuple[Node, ...]]:
        """Nodes that replace those of the graph."""
        found: dict[int, tuple[Node, ...]] = {}
        for position in self._sums:
            name = result(self._links.nodes[position])
            if self._links.only_reader(name) not in self._sums:  # else it is part of a larger one
                found |= self._joined(position)
        return found

    def _terms(self, root: int) -> tuple[list[str], list[int]]:
        """The values that a sum adds, in their order, and the positions of its additions."""
        terms: list[str] = []
        additions = [root]
        waiting = self._operands(root)
        while waiting:
            name = waiting.pop()
            maker = self._links.maker.get(name, -1)
            if maker in self._sums and self._links.only_reader(name) is not None:
                additions.append(maker)
                waiting += self._operands(maker)
            else:
                terms.append(name)
        return terms, additions

    def _operands(self, position: int) -> list[str]:
        add = self._sums[position]
        assert isinstance(add.b, Ref)  # noqa: S101 - as _adds_alike states
        return [add.b.name, add.a.name]

    def _padded(self, name: str) -> _Padded | None:
        """The term as a padded tensor, if it is one that nothing else reads. Views after the
        padding become views before it, as long as the zeros are ranges of an axis in them."""
        views: list[View] = []
        made_by: list[int] = []
        while True:
            position = self._links.maker.get(name)
            if position is None or self._links.only_reader(name) is None:
                return None
            made_by.append(position)
            operator = record_of(self._links.nodes[position])
            if not isinstance(operator, Reshape | Permute):
                break
            views.append(operator)
            name = operator.x.name
        ranges = _ranges(operator, self._links.values[name].shape)
        if ranges is None or not isinstance(operator, Pad):
            return None
        moved: list[View] = []
        while views and (after := seen(views[-1], ranges)) is not None:
            moved.append(of_part(views.pop(), after, 1))
            ranges = after
        further = tuple(msgspec.structs.replace(view, x=ANY) for view in reversed(views))
        return _Padded(operator.x, tuple(moved), ranges, further, tuple(made_by))

    def _joined(self, root: int) -> dict[int, tuple[Node, ...]]:
        """Nodes that replace a sum and the padding of its terms."""
        terms, additions = self._terms(root)
        padded = [self._padded(name) for name in terms]
        chosen = _largest_group([item for item in padded if item is not None])
        if sum(map(len, chosen.values())) < 2:
            return {}
        taken = [item for group in chosen.values() for item in group]
        gone = {position for item in taken for position in item.made_by}
        stay = (item is None or item.made_by[0] not in gone for item in padded)
        others = [name for name, stays in zip(terms, stay, strict=True) if stays]
        new = _Nodes(self._links, self._names, root)
        absorbed = absorbing(*(self._links.nodes[p] for p in (root, *sorted(gone))))
        new.join(chosen, others, absorbed)
        return {**dict.fromkeys((*gone, *additions), ()), root: tuple(new.nodes)}


def _ranges(operator: Operator | None, shape: tuple[int, ...]) -> Ranges | None:
    """Zeros, a tensor and zeros along one axis, as padding makes them; None for anything else."""
    if not isinstance(operator, Pad) or operator.value != 0:
        return None
    sides = list(zip(operator.before, operator.after, strict=True))
    axes = [axis for axis, pair in enumerate(sides) if any(pair)]
    if len(axes) != 1 or min(sides[axes[0]]) < 0 or 0 in shape:
        return None
    before, after = sides[axes[0]]
    size = shape[axes[0]] - before - after
    return Ranges(shape, axes[0], (before, size, after)) if size else None


Groups = dict[tuple[int, int], list[_Padded]]


def _largest_group(padded: Sequence[_Padded]) -> Groups:
    """The most terms along one axis, with the same further views, of which none overlaps another
    one unless it has the same place, by their places in ascending order."""
    by_axis: dict[object, Groups] = defaultdict(lambda: defaultdict(list))
    for item in padded:
        whole = item.ranges.shape, item.ranges.axis, item.further
        by_axis[whole][item.place].append(item)
    best: Groups = {}
    for groups in by_axis.values():
        free, chosen = 0, Groups()
        for place in sorted(groups, key=lambda place: (place[1], -place[0])):
            if place[0] >= free:
                chosen[place] = groups[place]
                free = place[1]
        best = max(best, chosen, key=lambda found: sum(map(len, found.values())))
    return best


class _Nodes:
    """The new nodes of a sum, which take the place of its last addition."""

    def __init__(self, links: Links, names: Names, root: int) -> None:
        self._root, self._names = links.nodes[root], names
        self._whole = links.values[result(self._root)]
        self._shapes = {name: value.shape for name, value in links.values.items()}
        self.nodes: list[Node] = []

    def join(self, groups: Groups, others: Sequence[str], absorbed: tuple[str, ...]) -> None:
        """Add all nodes, of which the last one makes the value of the sum."""
        first = next(iter(groups.values()))[0]
        last: Operator = self._concatenation(groups, first.ranges)
        shape = first.ranges.shape
        for view in first.further:
            last = msgspec.structs.replace(view, x=self._add(last, shape))
            shape = shape_after(view, shape)
        for name in others:
            last = Binary(function="add", a=self._add(last, shape), b=Ref(name=name))
        self.nodes.append(written(self._root, last, absorbed=absorbed))

    def _concatenation(self, groups: Groups, ranges: Ranges) -> Operator:
        if len(groups) == 1:
            [((start, stop), items)] = groups.items()
            return _pad(self._sum(items), ranges, start, stop)
        parts: list[Ref] = []
        end = 0
        for (start, stop), items in groups.items():
            parts += self._zeros(ranges.part(start - end)) if start > end else []
            parts.append(self._sum(items))
            end = stop
        size = ranges.shape[ranges.axis]
        parts += self._zeros(ranges.part(size - end)) if size > end else []
        return Concatenate(parts=tuple(parts), axis=ranges.axis)

    def _sum(self, items: Sequence[_Padded]) -> Ref:
        """The sum of terms of the same place."""
        first, *others = (self._seen(item) for item in items)
        for other in others:
            ranges = items[0].ranges
            shape = ranges.part(ranges.sizes[1])
            first = self._add(Binary(function="add", a=first, b=other), shape)
        return first

    def _seen(self, item: _Padded) -> Ref:
        """The tensor that was padded, as its views show it."""
        found = item.x
        for view in item.views:
            shape = shape_after(view, self._shapes[found.name])
            found = self._add(msgspec.structs.replace(view, x=found), shape)
        return found

    def _zeros(self, shape: tuple[int, ...]) -> list[Ref]:
        one = (1,) * len(shape)
        zero = self._add(Fill(shape=one, value=0.0, dtype=self._whole.dtype), one)
        return [self._add(Expand(x=zero, shape=shape), shape)]

    def _add(self, operator: Operator, shape: tuple[int, ...]) -> Ref:
        name = self._names.free(f"{self._whole.name}_part")
        made = Value(name=name, shape=shape, dtype=self._whole.dtype)
        plain = msgspec.structs.replace(self._root, absorbed=())
        self.nodes.append(written(plain, operator, name=name, outputs=(made,)))
        self._shapes[name] = shape
        return Ref(name=name)


def _pad(x: Ref, ranges: Ranges, start: int, stop: int) -> Pad:
    rank, size = len(ranges.shape), ranges.shape[ranges.axis]
    before = tuple(start if axis == ranges.axis else 0 for axis in range(rank))
    after = tuple(size - stop if axis == ranges.axis else 0 for axis in range(rank))
    return Pad(x=x, before=before, after=after, value=0.0)
