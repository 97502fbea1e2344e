"""Operators that read or write elements by their index."""

from __future__ import annotations

from golow.levels.direct.implementation import Implementation
from golow.levels.traced.writer import Writer
from golow.lower.ir.graph import Ref
from golow.lower.operators.gather import Gather, Scatter
from golow.lower.operators.index import Index, IndexPut
from golow.lower.operators.take import Take


def take(writer: Writer, given: Take) -> None:
    """x at these indices along an axis."""
    x, index = writer.plain(given.x), writer.plain(given.index)
    writer.put(f"jnp.take({x}, {index}, axis={given.axis})")


def gather(writer: Writer, given: Gather) -> None:
    """x where the index names the place on one axis."""
    writer.put(f"{writer.plain(given.x)}[{_places(writer, given.index, given.axis)}]")


def scatter(writer: Writer, given: Scatter) -> None:
    """x with elements written or added where `gather` reads."""
    verb = "add" if given.add else "set"
    source = given.source
    if isinstance(source, Ref):  # it may be larger than the index
        parts = ", ".join(f":{size}" for size in writer.value(given.index).shape)
        text = f"{writer.plain(source)}[{parts}]"
    else:
        text = writer.dialect.number(source)
    places = _places(writer, given.index, given.axis)
    writer.put(f"{writer.plain(given.x)}.at[{places}].{verb}({text})")


def index(writer: Writer, given: Index) -> None:
    """``x[indices]``."""
    writer.put(f"{writer.plain(given.x)}[{_indices(writer, given.indices)}]")


def index_put(writer: Writer, given: IndexPut) -> None:
    """``x[indices] = values``, or ``+=``."""
    verb = "add" if given.add else "set"
    places, values = _indices(writer, given.indices), writer.plain(given.values)
    writer.put(f"{writer.plain(given.x)}.at[{places}].{verb}({values})")


def _indices(writer: Writer, given: tuple[Ref | None, ...]) -> str:
    return ", ".join(":" if item is None else writer.plain(item) for item in given)


def _places(writer: Writer, index: Ref, axis: int) -> str:
    """An index for every axis: the given one, and each place of the others."""
    shape = writer.value(index).shape
    if not shape:
        return "..."
    found = []
    for place, size in enumerate(shape):
        behind = ", None" * (len(shape) - place - 1)
        counted = f"jnp.arange({size})[:{behind}]" if behind else f"jnp.arange({size})"
        found.append(writer.plain(index) if place == axis else counted)
    return ", ".join(found)


IMPLEMENTATIONS = (
    Implementation(Take, take),
    Implementation(Gather, gather),
    Implementation(Scatter, scatter),
    Implementation(Index, index),
    Implementation(IndexPut, index_put),
)
