"""Origin of a memory descriptor: the call of the library, with its arguments."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from golow.levels.direct.onednn.bindings.library import Descriptor
    from golow.levels.direct.onednn.bindings.primitive import PrimitiveDescription


class Strided(NamedTuple):
    """From strides, in elements."""

    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: str


class Tagged(NamedTuple):
    """From a format tag."""

    shape: tuple[int, ...]
    tag: int
    dtype: str


class Asked(NamedTuple):
    """Answer of a primitive's description to a query about one of its arguments."""

    description: PrimitiveDescription
    query: int
    position: int


class Reshaped(NamedTuple):
    """Reshaped view of a base."""

    base: Descriptor
    shape: tuple[int, ...]


class Permuted(NamedTuple):
    """Permuted view of a base: axis i of the base is axis where[i]."""

    base: Descriptor
    where: tuple[int, ...]


class Part(NamedTuple):
    """A box of the same bytes."""

    base: Descriptor
    shape: tuple[int, ...]
    offsets: tuple[int, ...]


Origin = Strided | Tagged | Asked | Reshaped | Permuted | Part
