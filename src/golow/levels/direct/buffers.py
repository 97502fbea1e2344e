"""The pieces of memory of a plan while it is being built."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from golow.lower.plan.plan import Buffer, Place, Step

# Place of what depends on weights alone, until all steps are known.
UNDECIDED: Place = "once"


class Buffers:
    """A list of buffers; tensors have their numbers."""

    def __init__(self) -> None:
        self.all: list[Buffer] = []

    def add(self, name: str, size: int, place: Place) -> int:
        """Add a buffer of that many bytes; return its number."""
        self.all.append(Buffer(name, size, place))
        return len(self.all) - 1

    def place(self, number: int) -> Place:
        """Where a buffer is."""
        return self.all[number].place

    def move(self, number: int, place: Place) -> None:
        """Put a buffer somewhere else."""
        self.all[number] = self.all[number]._replace(place=place)

    def decide_places(self, steps: Iterable[Step], kept: Collection[int]) -> None:
        """Keep what iterations read and these buffers, but not what only loading reads."""
        read = {operand.buffer for step in steps if not step.once for operand in step.reads}
        for number in read.union(kept):
            if self.place(number) == UNDECIDED:
                self.move(number, "constant")
