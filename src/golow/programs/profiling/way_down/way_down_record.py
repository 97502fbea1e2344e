"""The records of the way down."""

from __future__ import annotations

from golow.records.comparison import Quantity
from golow.records.record import Record
from golow.records.workload import TensorType


class Frame(Record, frozen=True, kw_only=True):
    """A function on the stack. place: a Python file, or the library of machine code."""

    name: str
    place: str


class LevelWay(Record, frozen=True, kw_only=True):
    """The way from the call of a layer to the vendor's entry at one level.

    verdict: of the check. time: seconds of the call in a race without Valgrind. python: the frames
    of Python in which most of the time passes, outermost first. native: those of machine code from
    the call to the entry, the heaviest path; interpreter: how many of Python's own were among them
    and are left out. entry: the vendor's function, owner: whose it is; both empty if the layer
    reaches none. entries: how often one is called. before, inside, after: instructions before the
    first entry, in all entries, and between and after them. allocations, dispatches: calls of the
    allocator and of PyTorch's dispatcher in the whole call. missing: why nothing was counted.
    """

    level: str
    verdict: str
    time: Quantity | None = None
    python: tuple[Frame, ...] = ()
    native: tuple[Frame, ...] = ()
    interpreter: int = 0
    entry: Frame | None = None
    owner: str = ""
    entries: int = 0
    before: int = 0
    inside: int = 0
    after: int = 0
    allocations: int = 0
    dispatches: int = 0
    missing: str = ""


class WayDown(Record, frozen=True, kw_only=True):
    """The way down of one layer at several levels.

    layer: its path in the network; operation: its class. inputs: what it gets there.
    """

    layer: str
    operation: str
    inputs: tuple[TensorType, ...]
    levels: tuple[LevelWay, ...]
