"""Reads what Valgrind's callgrind writes: who called whom, how often, and how many instructions.

The format is that of the manual, "Callgrind Format Specification". A part is what was collected
between two dumps; the costs of all parts add up. A call that was not over at a dump has its costs
so far in the part, with ``calls=0``.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

from golow.storage.files import read_text

COMPRESSED = re.compile(r"\((\d+)\)(?: (.*))?")
RECURSION = re.compile(r"'\d+$")
NOT_POSITION = re.compile(r"[^\d+\-*]")


class Function(NamedTuple):
    """A function: the file of its machine code, and its name; ``'2`` after a name is the second
    level of its recursion."""

    object: str
    name: str

    @property
    def plain(self) -> str:
        """Its name, whatever the level of its recursion."""
        return RECURSION.sub("", self.name)


class Edge(NamedTuple):
    """All calls of one function by another: how many, and the instructions in them."""

    calls: int
    cost: int


class Part(NamedTuple):
    """Counts up to a dump. trigger: what caused the dump. total: instructions."""

    trigger: str
    total: int
    own: Mapping[Function, int]
    edges: Mapping[tuple[Function, Function], Edge]


class Graph(NamedTuple):
    """Who called whom. own: instructions of each function itself; total: of all."""

    total: int
    own: Mapping[Function, int]
    edges: Mapping[tuple[Function, Function], Edge]


def read_parts(folder: Path, stem: str) -> list[Part]:
    """The parts that were dumped into the files ``STEM.1``, ``STEM.2``, ... of the folder."""
    files = (file for file in folder.glob(f"{stem}.*") if file.suffix[1:].isdigit())
    return [parse(read_text(file)) for file in sorted(files, key=lambda f: int(f.suffix[1:]))]


def combined(parts: Iterable[Part]) -> Graph:
    """All parts together."""
    own: Counter[Function] = Counter()
    calls: Counter[tuple[Function, Function]] = Counter()
    cost: Counter[tuple[Function, Function]] = Counter()
    for part in parts:
        own.update(part.own)
        for pair, edge in part.edges.items():
            calls[pair] += edge.calls
            cost[pair] += edge.cost
    edges = {pair: Edge(calls[pair], cost[pair]) for pair in cost}
    return Graph(sum(own.values()), own, edges)


def parse(text: str) -> Part:
    """One file, with one event (instructions). Raises `ValueError` if it is damaged."""
    reader = _Reader()
    for line in text.splitlines():
        reader.read(line)
    own_total = sum(reader.own.values())
    if reader.stated != own_total:
        raise ValueError(f"callgrind states {reader.stated} instructions, its lines {own_total}")
    edges = {pair: Edge(*numbers) for pair, numbers in reader.edges.items()}
    return Part(reader.trigger, own_total, reader.own, edges)


class _Reader:
    """Follows the lines of a file; a name stands in full where it first occurs."""

    def __init__(self) -> None:
        self.trigger, self.stated = "", 0
        self.own: Counter[Function] = Counter()
        self.edges: dict[tuple[Function, Function], list[int]] = defaultdict(lambda: [0, 0])
        self._names: dict[tuple[str, str], str] = {}
        self._object = self._called_object = ""
        self._function = self._called = Function("", "")
        self._calls: int | None = None  # of the call whose cost is on the next line

    def read(self, line: str) -> None:
        key, equals, value = line.partition("=")
        if equals and key.isalpha():
            self._specify(key, value)
        elif line.startswith("desc: Trigger:"):
            self.trigger = line.removeprefix("desc: Trigger:").strip()
        elif line.startswith("totals:"):
            self.stated = int(line.split()[1])
        elif line and not NOT_POSITION.search(line.partition(" ")[0]):
            self._count(int(line.split()[-1]))

    def _specify(self, key: str, value: str) -> None:
        if key == "ob":
            self._object = self._called_object = self._name("object", value)
        elif key == "fn":
            self._function = Function(self._object, self._name("function", value))
            self._called_object = self._object
        elif key == "cob":
            self._called_object = self._name("object", value)
        elif key == "cfn":
            self._called = Function(self._called_object, self._name("function", value))
            self._called_object = self._object  # `cob` holds for one call
        elif key == "calls":
            self._calls = int(value.split()[0])

    def _name(self, kind: str, value: str) -> str:
        found = COMPRESSED.fullmatch(value)
        if found is None:
            return value
        if found[2] is not None:
            self._names[kind, found[1]] = found[2]
        return self._names[kind, found[1]]

    def _count(self, cost: int) -> None:
        if self._calls is None:
            self.own[self._function] += cost
            return
        numbers = self.edges[self._function, self._called]
        numbers[0] += self._calls
        numbers[1] += cost
        self._calls = None
