"""The node that a builder is at: what the graph states about it and about its values, before any
memory is given to them. Both builders hold one."""

from __future__ import annotations

from functools import cached_property
from typing import TypeVar

import msgspec

from golow.lower.analysis import liveness
from golow.lower.analysis.constant_values import constant_values
from golow.lower.ir.graph import Graph, Ref, Value
from golow.lower.ir.rewriting import Links
from golow.records.errors import Unsupported

Note = TypeVar("Note")


class CurrentNode:
    """A place in a graph while a level builds steps for it. level: its name in errors. node: the
    graph's, at this position. trains: whether the graph is a training step. sources: the graph's
    inputs by the names of their values."""

    def __init__(self, graph: Graph, level: str) -> None:
        self.graph, self.level = graph, level
        self.node, self.position = graph.nodes[0], 0
        self.trains = graph.mode == "train"
        self.links = Links(graph)
        self.sources = {item.value.name: item for item in graph.inputs}
        self._groups, self._last_reads = liveness.last_reads(graph)
        self._notes: dict[tuple[str, type], object] = {}

    @property
    def name(self) -> str:
        """The node's name."""
        return self.node.name

    def move_to(self, position: int) -> None:
        """Make the graph's node at this position the current one."""
        self.node, self.position = self.graph.nodes[position], position

    def end(self) -> None:
        """Go on after the last node: what is built there updates no layer alone."""
        self.node = msgspec.structs.replace(self.node, module="", absorbed=(), phase="update")

    def unsupported(self, reason: str) -> Unsupported:
        """Return the error, with the name of the node."""
        return Unsupported(self.level, reason, self.name, self.node.module)

    # ------------------------------------------------------------ its values

    def output(self, index: int = 0) -> Value:
        """Return the node's value of that index, which must have a reader."""
        found = self.node.outputs[index]
        if found is None:
            raise LookupError(f"value {index} of {self.name} has no reader")
        return found

    def is_read(self, index: int) -> bool:
        """True if any node or graph output reads the node's value of that index."""
        return self.node.outputs[index] is not None

    def output_name(self, index: int = 0) -> str:
        """Return the name of the node's value, a generated one if nothing reads it."""
        value = self.node.outputs[index] if index < len(self.node.outputs) else None
        return f"{self.name}.{index}" if value is None else value.name

    # ------------------------------------------------------------ all values

    def value(self, reference: Ref) -> Value:
        """Return what the graph states about a value: its name, shape and dtype."""
        return self.links.values[reference.name]

    def is_input(self, reference: Ref) -> bool:
        """True if the value is an input of the model."""
        item = self.sources.get(reference.name)
        return item is not None and item.kind == "input"

    def target_of(self, parameter: Ref) -> str:
        """The name of a parameter in the state dict."""
        return self.sources[parameter.name].target

    @cached_property
    def constants(self) -> frozenset[str]:
        """The values that are the same in every iteration."""
        return constant_values(self.graph)

    def is_constant(self, reference: Ref) -> bool:
        """True if the value is the same in every iteration, and is there when loading is over."""
        return reference.name in self.constants

    # ------------------------------------------------------------ who shares memory, and how long

    def group(self, name: str) -> str:
        """Return the value that owns this value's memory."""
        return self._groups.get(name, name)

    def put_into(self, name: str, whole: str) -> None:
        """Count a value, and its views, among those that are in the memory of another one."""
        liveness.share_memory(self._groups, self._last_reads, name, whole)

    def share_memory(self, one: Ref, other: Ref) -> bool:
        """True if two values share their memory."""
        return self.group(one.name) == self.group(other.name)

    def reads_once(self, reference: Ref) -> bool:
        """True if no other argument of the node shares the value's memory."""
        names = {name for name in self.node.references() if name != reference.name}
        return all(self.group(name) != self.group(reference.name) for name in names)

    def is_read_last(self, name: str) -> bool:
        """True if no later node reads the value's memory."""
        return self._last_reads.get(self.group(name), -1) <= self.position

    # ------------------------------------------------------------ notes for the backward pass

    def note(self, name: str, note: object) -> None:
        """Attach a note to a value, for the node that computes the gradient."""
        self._notes[(name, type(note))] = note

    def noted(self, reference: Ref, kind: type[Note]) -> Note:
        """Return the note of that kind on a value. Raises LookupError if there is none."""
        found = self.found_note(reference.name, kind)
        if found is None:
            raise LookupError(f"{reference.name} was made without a {kind.__name__}")
        return found

    def found_note(self, name: str, kind: type[Note]) -> Note | None:
        """Return the note of that kind; None if there is none."""
        found = self._notes.get((name, kind))
        return found if isinstance(found, kind) else None
