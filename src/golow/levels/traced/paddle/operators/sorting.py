"""Sorting, and where the largest or smallest element is."""

from __future__ import annotations

from golow.levels.direct.implementation import Implementation
from golow.levels.traced.writer import Writer
from golow.lower.ir.graph import Ref
from golow.lower.operators.sort import ArgReduce, Sort


def sort(writer: Writer, given: Sort) -> None:
    """The elements in order, and where each was."""
    x = writer.plain(given.x)
    further = f"axis={given.axis}, descending={given.descending}, stable=True"
    places = writer.line("places", f"paddle.argsort({_sortable(writer, given.x)}, {further})")
    writer.put(f"paddle.take_along_axis({x}, {places}, {given.axis})")
    writer.put(places, index=1)


def place(writer: Writer, given: ArgReduce) -> None:
    """Where the largest or smallest element is."""
    name = "argmax" if given.function == "maximum" else "argmin"
    x = _sortable(writer, given.x)
    writer.put(f"paddle.{name}({x}, axis={given.axis}, keepdim={given.keep})")


def _sortable(writer: Writer, given: Ref) -> str:
    """Truth values have no order in Paddle."""
    x = writer.plain(given)
    return writer.dialect.converted(x, "int32") if writer.value(given).dtype == "bool" else x


IMPLEMENTATIONS = (Implementation(Sort, sort), Implementation(ArgReduce, place))
