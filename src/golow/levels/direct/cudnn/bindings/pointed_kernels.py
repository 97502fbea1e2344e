"""Kernels of a CUDA graph that have addresses of the caller's among their parameters."""

from __future__ import annotations

import ctypes
from collections import defaultdict
from collections.abc import Collection, Sequence
from typing import Any, NamedTuple


class Slot(NamedTuple):
    """An address among a kernel's parameters. place: which of the changing pieces of memory;
    offset: bytes from there."""

    place: int
    offset: int
    word: ctypes.c_uint64


class Node(NamedTuple):
    """A kernel with such addresses. parameters: as the driver takes them, with the addresses that
    were written last; kept: what they point to."""

    handle: ctypes.c_void_p
    parameters: Any
    slots: tuple[Slot, ...]
    kept: Any


class PointedKernels:
    """The kernels of a graph that have such addresses."""

    def __init__(self, nodes: Sequence[Node]) -> None:
        self._nodes = nodes
        self._slots: dict[int, list[tuple[int, Slot]]] = defaultdict(list)  # with the node's number
        for number, node in enumerate(nodes):
            for slot in node.slots:
                self._slots[slot.place].append((number, slot))

    @property
    def places(self) -> frozenset[int]:
        """The pieces of memory whose address a kernel has."""
        return frozenset(self._slots)

    def point(self, before: Sequence[int], addresses: Sequence[int]) -> Collection[Node]:
        """Write the addresses into the parameters; return the kernels whose parameters this
        changes. before: the addresses that all of them have; empty if they are unknown."""
        found = {}
        for place, slots in self._slots.items():
            if not before or before[place] != addresses[place]:
                for number, slot in slots:
                    slot.word.value = addresses[place] + slot.offset
                    found[number] = self._nodes[number]
        return found.values()
