"""What the graph says about the node that is being built and about its values, before any memory is
given to them."""

from __future__ import annotations

from typing import NamedTuple, TypeVar

from golow.lower.analysis.constant_values import constant_values
from golow.lower.analysis.liveness import last_reads
from golow.lower.analysis.ranges import View
from golow.lower.fuse.products import read_through_views
from golow.lower.ir.graph import Graph, Ref, Value
from golow.lower.ir.operator import Operator, record_of
from golow.lower.ir.rewriting import Links, result
from golow.lower.operators.permute import Permute
from golow.lower.operators.reshape import Reshape
from golow.records.errors import Unsupported

LEVEL = "cudnn"

Note = TypeVar("Note")


class Chain(NamedTuple):
    """A value's shape, the views of which each alone reads the one before, and the last one's name
    (the value's own, without views)."""

    shape: tuple[int, ...]
    views: tuple[View, ...]
    last: str


class CurrentNode:
    """The node of a graph that is being built. position: among the graph's nodes."""

    def __init__(self, graph: Graph) -> None:
        self.graph, self.node, self.position = graph, graph.nodes[0], 0
        self.trains = graph.mode == "train"
        self._notes: dict[tuple[str, type], object] = {}
        self._all_values = graph.values()
        self._same = constant_values(graph)
        self._links = Links(graph)
        self._sources = {item.value.name: item for item in graph.inputs}
        self._groups, self._last_reads = last_reads(graph)

    def unsupported(self, reason: str) -> Unsupported:
        """Return the error, with the name of the current node."""
        return Unsupported(LEVEL, reason, self.node.name, self.node.module)

    def value(self, reference: Ref) -> Value:
        """Return what the graph says about a value: its name, shape and dtype."""
        return self._all_values[reference.name]

    def output(self, index: int = 0) -> Value:
        """Return the current node's value of that index, which must have a reader."""
        found = self.node.outputs[index]
        if found is None:
            raise LookupError(f"value {index} of {self.node.name} has no reader")
        return found

    def is_read(self, index: int) -> bool:
        """Whether any node or graph output reads the current node's value of that index."""
        return self.node.outputs[index] is not None

    def reads_once(self, reference: Ref) -> bool:
        """Whether no other argument of the current node shares the value's memory."""
        names = {name for name in self.node.references() if name != reference.name}
        group = self._groups.get(reference.name, reference.name)
        return all(self._groups.get(name, name) != group for name in names)

    def is_constant(self, reference: Ref) -> bool:
        """Whether the value is the same in every iteration, and is there when loading is over."""
        return reference.name in self._same

    def may_lie_anyhow(self, weight: Ref) -> bool:
        """Whether a constant is read by the current node alone."""
        alone = self._links.only_reader(weight.name) == self.position
        return alone and self.is_constant(weight)

    def is_read_by(self, kinds: tuple[type[Operator], ...], returned: bool = False) -> bool:
        """Whether only these operators read the current node's value, through views. returned: it
        may be an output of the model, too."""
        names, readers = read_through_views(self._links, self.output().name)
        ends = {item.kind for item in self.graph.outputs if item.name in names}
        known = all(isinstance(record_of(self.graph.nodes[reader]), kinds) for reader in readers)
        return bool(readers) and known and ends <= ({"output"} if returned else set())

    def read_through(self, name: str) -> Chain:
        """Return the reshapes and permutations after a value that leave its last axis the last one,
        as long as one node alone reads each of them."""
        shape, views = self._all_values[name].shape, list[View]()
        while (reader := self._links.only_reader(name)) is not None:
            view = record_of(self.graph.nodes[reader])
            if isinstance(view, Permute) and view.order[-1:] != (len(view.order) - 1,):
                break
            if not isinstance(view, Reshape | Permute):
                break
            views.append(view)
            name = result(self.graph.nodes[reader])
        return Chain(shape, tuple(views), name)

    def is_input(self, reference: Ref) -> bool:
        """Whether the value is an input of the model."""
        item = self._sources.get(reference.name)
        return item is not None and item.kind == "input"

    def target_of(self, parameter: Ref) -> str:
        """The name of a parameter in the state dict."""
        return self._sources[parameter.name].target

    def note(self, reference: str, note: object) -> None:
        """Attach a note to a value, for the node that computes the gradient."""
        self._notes[(reference, type(note))] = note

    def noted(self, reference: Ref, kind: type[Note]) -> Note:
        """Return the note of that kind on a value. Raises LookupError if there is none."""
        found = self.found_note(reference.name, kind)
        if found is None:
            raise LookupError(f"{reference.name} was made without a {kind.__name__}")
        return found

    def found_note(self, reference: str, kind: type[Note]) -> Note | None:
        """Return the note of that kind; None if there is none."""
        found = self._notes.get((reference, kind))
        return found if isinstance(found, kind) else None
