"""Gradients of tied weights: of a weight that an embedding shares with another layer, such as a
language model's head."""

from __future__ import annotations

from golow.lower.fuse.epilogue_fusion import adds_alike
from golow.lower.ir.graph import Graph, Ref
from golow.lower.ir.patterns import Fusion, Match, Rule, fuse, node
from golow.lower.operators.binary import Binary
from golow.lower.operators.take import AddRows, TakeBackward


def add_rows_to_gradients(graph: Graph) -> Graph:
    """Add an embedding's gradient, rows of which few are not zero, to the other gradient of the
    weight, so that it never has a separate matrix."""
    return fuse(graph, TIED)


def _in_sum(match: Match) -> list[Fusion]:
    rows, other = match.arguments("rows", TakeBackward), match.arguments("sum", Binary).b
    assert isinstance(other, Ref)  # noqa: S101 - as adds_alike states
    operator = AddRows(
        x=other, gradient=rows.gradient, index=rows.index, axis=rows.axis, skipped=rows.skipped
    )
    return [Fusion(operator, "rows", ("sum",), "sum", match["sum"].node.outputs)]


TIED = Rule(
    [
        node(
            "sum",
            Binary,
            function="add",
            activation=None,
            a=node("rows", TakeBackward, alone=True),
            commutes=True,
            where=adds_alike,
        )
    ],
    _in_sum,
)
