"""Pooling and norms of volumes as images (`golow.lower.images.planes`)."""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from golow.lower.aten.decomposition import lenient
from golow.lower.images.planes import AXES, Chain, are_side_by_side
from golow.lower.ir.graph import Graph, Node, Ref, Value
from golow.lower.ir.rewriting import Links, Names, rewritten, with_names
from golow.lower.ir.spelling import Call
from golow.lower.operators import max_pool
from golow.lower.operators.max_pool import MaxPool, MaxPoolBackward

FORWARD = ("aten.max_pool3d.default", "aten.max_pool3d_with_indices.default")
BACKWARD = "aten.max_pool3d_with_indices_backward.default"
NORMS = (
    "aten._native_batch_norm_legit_functional.default",
    "aten.native_batch_norm_backward.default",
)


def norm_by_planes(graph: Graph) -> Graph:
    """Let batch norm in training, and its gradient, see the planes of volumes: the statistics are
    those of all elements of a channel."""
    graph = lenient(graph)
    values, names, ordered = graph.values(), Names(graph), are_side_by_side(graph)
    replaced: dict[int, tuple[Node, ...]] = {}
    for position, node in enumerate(graph.nodes):
        output = node.outputs[0]
        if node.op not in NORMS or output is None or len(output.shape) != AXES + 2:
            continue
        chain, seen = Chain(node, names, output), dict[str, str]()
        for name in dict.fromkeys(node.references()):
            if len(values[name].shape) == AXES + 2:
                chain.last = values[name]
                chain.to_planes(ordered)
                seen[name] = chain.last.name
        made = chain.value(chain.last.shape)
        normed = msgspec.structs.replace(
            with_names(node, seen), outputs=(made, *node.outputs[1:]), name=made.name
        )
        chain.nodes.append(normed)
        chain.last = made
        chain.to_volumes(output.shape[0], ordered)
        replaced[position] = tuple(chain.end(output))
    return rewritten(graph, replaced) if replaced else graph


def pool_by_planes(graph: Graph) -> Graph:
    """Make each max pooling of volumes one or two of images, every plane and then the planes over
    one another, and its gradient likewise. Where elements are equal, the same one counts as in a
    volume: the first of the first plane."""
    graph = lenient(graph)
    links, names, side_by_side = Links(graph), Names(graph), are_side_by_side(graph)
    replaced: dict[int, tuple[Node, ...]] = {}
    pooled: dict[str, _Pooled] = {}
    for position, node in enumerate(graph.nodes):
        if node.op not in (*FORWARD, BACKWARD):
            continue
        call = Call(node, links)
        if node.op in FORWARD and (whole := max_pool.of_axes(call, AXES)) is not None:
            found = _Pooled(node, whole, links.values[whole.x.name], names, side_by_side)
            replaced[position] = tuple(found.nodes)
            if whole.indices and node.outputs[1] is not None:
                pooled[node.outputs[1].name] = found
        elif node.op == BACKWARD:
            made = pooled.get(call.ref("indices").name)
            if made is not None:
                gradient = links.values[call.ref("grad_output").name]
                replaced[position] = tuple(made.backward(node, gradient))
    return rewritten(graph, replaced) if replaced else graph


class _Stage(NamedTuple):
    """One pooling of images: what it reads, and its indices."""

    pool: MaxPool
    x: Value
    indices: Value


class _Pooled:
    """A pooling of volumes [N, C, D, H, W] as poolings of images."""

    def __init__(
        self, node: Node, whole: MaxPool, x: Value, names: Names, side_by_side: bool
    ) -> None:
        self._names, self._whole, self._shape = names, whole, x.shape
        self._side_by_side = side_by_side
        self.stages: list[_Stage] = []
        chain = Chain(node, names, x)
        count, channels = x.shape[:2]
        chain.to_planes(side_by_side)
        self._pool(chain, 1, 3)
        chain.to_volumes(count, side_by_side)
        if self._has_depth:
            height, width = chain.last.shape[3:]
            chain.to_columns(side_by_side)
            self._pool(chain, 0, 1)
            depth = chain.last.shape[2]
            chain.from_columns((count, channels, depth, height, width), side_by_side)
        output = node.outputs[0]
        self.nodes = chain.end(output) if output is not None else chain.nodes

    @property
    def _has_depth(self) -> bool:
        whole = self._whole
        return (whole.kernel[0], whole.stride[0], whole.padding[0]) != (1, 1, 0)

    def _pool(self, chain: Chain, first: int, end: int) -> None:
        """Add a pooling over these axes of the volume. Of the depth alone, the image's other axis
        stays as it is."""
        whole, rest = self._whole, 2 - (end - first)

        def part(sizes: tuple[int, ...], other: int) -> tuple[int, ...]:
            return (*sizes[first:end], *[other] * rest)

        pool = MaxPool(
            x=Ref(name=chain.last.name), kernel=part(whole.kernel, 1), stride=part(whole.stride, 1),
            padding=part(whole.padding, 0), dilation=part(whole.dilation, 1), ceil=whole.ceil,
            indices=whole.indices,
        )  # fmt: skip
        x = chain.last
        sizes = [_windows(pool, axis, size) for axis, size in enumerate(x.shape[2:])]
        made = chain.value((*x.shape[:2], *sizes))
        indices = chain.value(made.shape, "int64")
        self.stages.append(_Stage(pool, x, indices))
        chain.add(pool, made, *([indices] if whole.indices else []))

    def backward(self, node: Node, gradient: Value) -> list[Node]:
        """The gradient of x."""
        chain = Chain(node, self._names, gradient)
        if self._has_depth:
            chain.to_columns(self._side_by_side)
            self._back(chain, self.stages[1])
            shape = (*self._shape[:3], *gradient.shape[3:])
            chain.from_columns(shape, self._side_by_side)
        chain.to_planes(self._side_by_side)
        self._back(chain, self.stages[0])
        chain.to_volumes(self._shape[0], self._side_by_side)
        output = node.outputs[0]
        return chain.end(output) if output is not None else chain.nodes

    def _back(self, chain: Chain, stage: _Stage) -> None:
        pool = stage.pool
        operator = MaxPoolBackward(
            gradient=Ref(name=chain.last.name), x=Ref(name=stage.x.name),
            indices=Ref(name=stage.indices.name), kernel=pool.kernel, stride=pool.stride,
            padding=pool.padding, dilation=pool.dilation, ceil=pool.ceil,
        )  # fmt: skip
        chain.add(operator, chain.value(stage.x.shape))


def _windows(pool: MaxPool, axis: int, size: int) -> int:
    """How many windows begin among the elements or the padding before them."""
    kernel, stride, padding = pool.kernel[axis], pool.stride[axis], pool.padding[axis]
    room = size + 2 * padding - pool.dilation[axis] * (kernel - 1) - 1
    count = (room + (stride - 1 if pool.ceil else 0)) // stride + 1
    return count - 1 if pool.ceil and (count - 1) * stride >= size + padding else count
