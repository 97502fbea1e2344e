"""A graph with what is constant in it, and the arithmetic that makes its values."""

from __future__ import annotations

from golow.lower.analysis.constant_values import constant_values
from golow.lower.ir.graph import Graph, Node, Ref
from golow.lower.ir.rewriting import Links
from golow.lower.operators.binary import Binary
from golow.lower.operators.pointwise import Pointwise


class ConstantGraph(Links):
    """constant: names of the values that are the same in every iteration."""

    def __init__(self, graph: Graph) -> None:
        super().__init__(graph)
        self.constant = constant_values(graph)

    def made(self, reference: object) -> Node | None:
        """The node that makes a value."""
        position = self.maker.get(reference.name) if isinstance(reference, Ref) else None
        return None if position is None else self.nodes[position]

    def converted(self, reference: Ref, *dtypes: str) -> Ref | None:
        """The value of one of these types that was converted to this one."""
        source = self.pointwise(reference, "convert")
        return source if source is not None and self.values[source.name].dtype in dtypes else None

    def pointwise(self, reference: Ref, function: str) -> Ref | None:
        """The first argument of the function that makes a value."""
        node = self.made(reference)
        found = None if node is None else Pointwise.of(node)
        source = found.operands[0] if found and found.function == function else None
        return source if isinstance(source, Ref) else None

    def binary(self, reference: Ref, function: str, number: float | None = None) -> Binary | None:
        """The arithmetic that makes a value, with this number as its second argument if given."""
        node = self.made(reference)
        found = None if node is None else Binary.of(node)
        if found is None or found.function != function or found.activation is not None:
            return None
        return found if number is None or found.b == number else None
