"""Split of interleaved views: gives interleaved parts a separate axis.

A rotary embedding that turns neighbours (Su et al. 2021, "RoFormer"), as GPT-J's, is written as
x cos + stack(-x[1::2], x[0::2]) sin, where the stacked axis is joined with the last one at once.
With pairs as an axis, parts are ranges of it, and `compute_before_joining` makes one kernel of all.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from golow.lower.ir.clean_up import eliminate_dead_code
from golow.lower.ir.graph import Graph, Node, Ref, Value
from golow.lower.ir.operator import Operator, written
from golow.lower.ir.rewriting import Links, Names, result, rewritten, with_names
from golow.lower.operators.concatenate import Concatenate
from golow.lower.operators.reshape import Reshape
from golow.lower.operators.slice import Slice
from golow.lower.views.joined_functions import FUNCTIONS

Shape = tuple[int, ...]


def split_interleaved(graph: Graph) -> Graph:
    """Let functions of elements after such a join compute with an axis for its parts, where the
    parts are every k-th element of values, or functions of these."""
    links, names = Links(graph), Names(graph)
    replaced: dict[int, tuple[Node, ...]] = {}
    for position, node in enumerate(graph.nodes):
        joined, flat = Concatenate.of(node), links.only_reader(result(node))
        if joined is None or flat is None or not _joins_the_last(links, position, flat, joined):
            continue
        apart = _Apart(links, names, len(joined.parts))
        chain = apart.functions_after(flat)
        parts = [apart.part(part.name) for part in joined.parts]
        gone = (position, flat, *chain)
        free = not replaced.keys() & set(gone)  # a sum of two of them belongs to the first
        if chain and free and all(part is not None for part in parts):
            replaced |= dict.fromkeys(gone, ())
            replaced[chain[-1]] = tuple(apart.nodes_for(node, parts, flat, chain))
    return eliminate_dead_code(rewritten(graph, replaced)) if replaced else graph


def _joins_the_last(links: Links, position: int, flat: int, joined: Concatenate) -> bool:
    """True if parts of one element are joined along a last axis, and a view joins that with the
    axis before it."""
    shape = links.values[result(links.nodes[position])].shape
    view = Reshape.of(links.nodes[flat])
    ones = all(links.values[part.name].shape[-1] == 1 for part in joined.parts)
    at_end = joined.axis == len(shape) - 1 and len(shape) > 1
    return (
        ones and at_end and view is not None and view.shape == (*shape[:-2], shape[-2] * shape[-1])
    )


class _Apart:
    """Makes nodes with k elements of the last axis as a separate axis."""

    def __init__(self, links: Links, names: Names, k: int) -> None:
        self._links, self._names, self._k = links, names, k
        self._new: list[Node] = []
        self._like: Node | None = None

    def functions_after(self, position: int) -> list[int]:
        """The functions of elements that follow one another after a node, each its only reader."""
        found: list[int] = []
        shape = self._shape(result(self._links.nodes[position]))
        while (reader := self._links.only_reader(result(self._links.nodes[position]))) is not None:
            node = self._links.nodes[reader]
            if node.op not in FUNCTIONS or self._shape(result(node)) != shape:
                break
            found.append(reader)
            position = reader
        return found

    def part(self, name: str) -> str | None:
        """Source of a part that is every k-th element of a value; None for other parts."""
        maker = self._links.maker.get(name)
        view = None if maker is None else Reshape.of(self._links.nodes[maker])
        if view is None or view.shape != (*self._shape(view.x.name), 1):
            return None
        return view.x.name if self._is_every_kth(view.x.name) else None

    def _is_every_kth(self, name: str) -> bool:
        maker = self._links.maker.get(name)
        if maker is None:
            return False
        node = self._links.nodes[maker]
        if self._element(node) is not None:
            return True
        cut = Slice.of(node)
        if cut is not None:
            size = self._shape(cut.x.name)[-1]
            whole = cut.start < self._k and size - cut.stop < self._k and size % self._k == 0
            last = cut.axis == len(self._shape(name)) - 1
            return whole and last and cut.step == self._k
        wide = [n for n in node.references() if self._shape(n) == self._shape(name)]
        return node.op in FUNCTIONS and bool(wide) and all(map(self._is_every_kth, wide))

    def _element(self, node: Node) -> str | None:
        """The value [..., n, 1] of which a node removes the last axis, if it is one element of that
        axis of [..., n, k], or a function of such elements: another spelling of every k-th
        element."""
        view = Reshape.of(node)
        if view is None or self._shape(view.x.name) != (*view.shape, 1):
            return None
        maker = self._links.maker.get(view.x.name)
        made = self._links.nodes[maker] if maker is not None else None
        cut = Slice.of(made) if made is not None else None
        whole = self._shape(cut.x.name) if cut is not None else ()
        taken = cut is not None and cut.axis == len(view.shape) and whole[-1] == self._k
        function = made is not None and made.op in FUNCTIONS
        return view.x.name if taken or function else None

    def nodes_for(
        self,
        joined: Node,
        parts: Sequence[str | None],
        flat: int,
        chain: Sequence[int],
    ) -> list[Node]:
        """The nodes in the place of the last function of the chain."""
        self._new, self._like = [], msgspec.structs.replace(joined, absorbed=())
        made = [self._every_kth(part) for part in parts if part is not None]
        value, operator = joined.outputs[0], Concatenate.of(joined)
        assert value is not None and operator is not None  # noqa: S101 - as in split_interleaved
        operator = msgspec.structs.replace(operator, parts=tuple(Ref(name=n) for n in made))
        self._new.append(written(joined, operator))
        known = {result(self._links.nodes[flat]): value.name}
        for position in chain:
            function = self._links.nodes[position]
            known[result(function)] = self._function(function, known)
        last = self._links.nodes[chain[-1]]
        shape = self._shape(result(last))
        back = Reshape(x=Ref(name=known[result(last)]), shape=shape)
        return [*self._new, written(self._like, back, name=last.name, outputs=last.outputs)]

    def _every_kth(self, name: str) -> str:
        """A part [..., n] as [..., n, 1]."""
        maker = self._links.maker[name]
        node = self._links.nodes[maker]
        if (element := self._element(node)) is not None:
            return element
        cut = Slice.of(node)
        if cut is None:
            names = {
                n: self._every_kth(n) if self._shape(n) == self._shape(name) else self._wide(n, 1)
                for n in node.references()
            }
            return self._copy(node, names, (*self._shape(name), 1))
        x = self._view(cut.x.name, self._k)
        shape = (*self._shape(name), 1)
        axis = len(shape) - 1
        return self._emit(
            Slice(x=Ref(name=x), axis=axis, start=cut.start, stop=cut.start + 1, step=1),
            shape,
            name,
        )

    def _function(self, node: Node, known: dict[str, str]) -> str:
        """A function [..., n k] as [..., n, k]."""
        names = {n: known.get(n) or self._operand(n) for n in node.references()}
        shape = self._shape(result(node))
        return self._copy(node, names, (*shape[:-1], shape[-1] // self._k, self._k))

    def _operand(self, name: str) -> str:
        """Operand with the new axis: a value computed only for this function is computed with it,
        too."""
        maker = self._links.maker.get(name)
        node = None if maker is None else self._links.nodes[maker]
        alone = self._links.only_reader(name) is not None
        whole = self._shape(name)[-1:] not in ((), (1,))
        if node is not None and node.op in FUNCTIONS and alone and whole:
            return self._function(node, {})
        return self._wide(name, self._k)

    def _wide(self, name: str, k: int) -> str:
        """An operand that may be repeated along the last axis, or have no axes."""
        shape = self._shape(name)
        return name if not shape else self._view(name, 1 if shape[-1] == 1 else k)

    def _view(self, name: str, k: int) -> str:
        """[..., n k] as [..., n, k]."""
        shape = self._shape(name)
        apart = (*shape[:-1], shape[-1] // k, k)
        return self._emit(Reshape(x=Ref(name=name), shape=apart), apart, name)

    def _emit(self, operator: Operator, shape: Shape, source: str) -> str:
        assert self._like is not None  # noqa: S101 - nodes_for sets it first
        value = self._value(source, shape)
        self._new.append(written(self._like, operator, name=value.name, outputs=(value,)))
        return value.name

    def _copy(self, node: Node, names: dict[str, str], shape: Shape) -> str:
        value = self._value(result(node), shape)
        copied = with_names(node, names)
        self._new.append(msgspec.structs.replace(copied, name=value.name, outputs=(value,)))
        return value.name

    def _value(self, source: str, shape: Shape) -> Value:
        name = self._names.free(f"{source}.apart")
        return Value(name=name, shape=shape, dtype=self._links.values[source].dtype)

    def _shape(self, name: str) -> Shape:
        return self._links.values[name].shape
