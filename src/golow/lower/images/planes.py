"""Volumes as images, for a level whose kernels take images: the planes of all volumes, or images
whose rows are planes. The planes are one volume after the other where every convolution of volumes
is one operator, else the first planes of all volumes first (`golow.lower.decompositions.planes`).
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from golow.lower.images.volumes import convolutions
from golow.lower.ir.graph import Graph, Node, Ref, Value
from golow.lower.ir.operator import Operator, written
from golow.lower.ir.rewriting import Names
from golow.lower.operators.permute import Permute
from golow.lower.operators.reshape import Reshape

AXES = 3


def are_side_by_side(graph: Graph) -> bool:
    """True if planes are one volume after the other: no convolution of volumes will be unfolded."""
    return next(convolutions(graph), None) is None


class Chain:
    """Nodes in place of one, each of which reads the result of the one before."""

    def __init__(self, beside: Node, names: Names, start: Value) -> None:
        self.nodes: list[Node] = []
        self.last = start
        self._beside, self._names = beside, names

    def value(self, shape: Sequence[int], dtype: str = "") -> Value:
        """A new value."""
        name = self._names.free(f"{self._beside.name}.planes")
        dtype = dtype or self.last.dtype
        return msgspec.structs.replace(self.last, name=name, shape=tuple(shape), dtype=dtype)

    def add(self, operator: Operator, *outputs: Value) -> None:
        """A node with these results, the first of which is read next."""
        self.nodes.append(
            written(self._beside, operator, name=outputs[0].name, outputs=tuple(outputs))
        )
        self.last = outputs[0]

    def permute(self, *order: int) -> None:
        shape = [self.last.shape[axis] for axis in order]
        self.add(Permute(x=Ref(name=self.last.name), order=order), self.value(shape))

    def reshape(self, *shape: int) -> None:
        self.add(Reshape(x=Ref(name=self.last.name), shape=shape), self.value(shape))

    def end(self, output: Value) -> list[Node]:
        """All nodes, of which the last one makes this value."""
        *before, last = self.nodes
        return [*before, msgspec.structs.replace(last, outputs=(output, *last.outputs[1:]))]

    def to_planes(self, side_by_side: bool) -> None:
        """Volumes as their planes."""
        self.permute(*((0, 2, 1, 3, 4) if side_by_side else (2, 0, 1, 3, 4)))
        one, other, *others = self.last.shape
        self.reshape(one * other, *others)

    def to_volumes(self, count: int, side_by_side: bool) -> None:
        """Planes of this many volumes as volumes."""
        planes, *others = self.last.shape
        depth = planes // count
        self.reshape(*((count, depth) if side_by_side else (depth, count)), *others)
        self.permute(*((0, 2, 1, 3, 4) if side_by_side else (1, 2, 0, 3, 4)))

    def to_columns(self, side_by_side: bool) -> None:
        """Volumes as images whose rows are planes: one for each volume, or one of all volumes
        beside one another."""
        count, channels, depth, height, width = self.last.shape
        if side_by_side:
            self.reshape(count, channels, depth, height * width)
        else:
            self.permute(1, 2, 0, 3, 4)
            self.reshape(1, channels, depth, count * height * width)

    def from_columns(self, shape: Sequence[int], side_by_side: bool) -> None:
        """The inverse. shape: of the volumes."""
        count, channels, depth, height, width = shape
        if side_by_side:
            self.reshape(count, channels, depth, height, width)
        else:
            self.reshape(channels, depth, count, height, width)
            self.permute(2, 0, 1, 3, 4)
