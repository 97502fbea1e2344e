"""Sorting, and where the largest or smallest element is."""

from __future__ import annotations

from golow.levels.direct.implementation import Implementation
from golow.levels.traced.writer import Writer
from golow.lower.operators.sort import ArgReduce, Sort


def sort(writer: Writer, given: Sort) -> None:
    """The elements in order, and where each was."""
    x = writer.plain(given.x)
    further = ", descending=True" if given.descending else ""
    order = writer.line("order", f"jnp.argsort({x}, axis={given.axis}, stable=True{further})")
    writer.put(f"jnp.take_along_axis({x}, {order}, axis={given.axis})")
    writer.put(order, index=1)


def place(writer: Writer, given: ArgReduce) -> None:
    """Where the largest or smallest element is."""
    name = "argmax" if given.function == "maximum" else "argmin"
    keep = ", keepdims=True" if given.keep else ""
    writer.put(f"jnp.{name}({writer.plain(given.x)}, axis={given.axis}{keep})")


IMPLEMENTATIONS = (Implementation(Sort, sort), Implementation(ArgReduce, place))
