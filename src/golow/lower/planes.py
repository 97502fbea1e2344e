"""Passes that pool and norm volumes as images, for a level whose kernels take images. The images
are the planes of all volumes: one volume after the other where convolutions of volumes are one
operator, else the first planes first (`golow.lower.decompositions.planes`)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import msgspec

from golow.lower.decomposition import lenient
from golow.lower.graph import Graph, Node, Ref, Value
from golow.lower.operator import Operator, written
from golow.lower.operators import max_pool
from golow.lower.operators.convolution import Convolution, ConvolutionBackward
from golow.lower.operators.max_pool import MaxPool, MaxPoolBackward
from golow.lower.operators.permute import Permute
from golow.lower.operators.reshape import Reshape
from golow.lower.rewriting import Links, Names, rewritten, with_names
from golow.lower.spelling import Call
from golow.lower.volumes import SPELLINGS, convolutions, has_whole_convolutions, is_of_planes

AXES = 3
FORWARD = ("aten.max_pool3d.default", "aten.max_pool3d_with_indices.default")
BACKWARD = "aten.max_pool3d_with_indices_backward.default"
NORMS = (
    "aten._native_batch_norm_legit_functional.default",
    "aten.native_batch_norm_backward.default",
)


def convolve_planes(graph: Graph) -> Graph:
    """Make convolutions that compute each plane of volumes by itself those of images, with their
    gradients, beside ones that are whole."""
    graph = lenient(graph)
    if not has_whole_convolutions(graph):
        return graph
    names, values, replaced = Names(graph), graph.values(), dict[int, tuple[Node, ...]]()
    for position, node, call in convolutions(graph):
        layer = SPELLINGS[node.op](call, AXES) if node.op in SPELLINGS else None
        if isinstance(layer, Convolution | ConvolutionBackward) and is_of_planes(call, layer):
            replaced[position] = tuple(_of_planes(node, layer, values, names))
    return rewritten(graph, replaced) if replaced else graph


def _of_planes(
    node: Node,
    layer: Convolution | ConvolutionBackward,
    values: Mapping[str, Value],
    names: Names,
) -> Iterator[Node]:
    """Planes of what the layer reads, the layer of images, and volumes of what it makes."""
    read: dict[str, Ref] = {}
    for field in ("x", "gradient", "weight"):
        reference = getattr(layer, field, None)
        if reference is None:
            continue
        chain = _Chain(node, names, values[reference.name])
        if field == "weight":
            filters, channels, _, height, width = chain.last.shape
            chain.reshape(filters, channels, height, width)
        else:
            _to_planes(chain, whole=True)
        yield from chain.nodes
        read[field] = Ref(name=chain.last.name)
    sides = (*layer.padding[1:AXES], *layer.padding[AXES + 1 :])
    image = msgspec.structs.replace(
        layer, **read, stride=layer.stride[1:], padding=sides, dilation=layer.dilation[1:]
    )
    count = values[layer.x.name].shape[0]
    made: list[Value | None] = []
    after: list[Node] = []
    for output, of_weight in zip(node.outputs, (False, True, False), strict=False):
        if output is None or len(output.shape) != AXES + 2:
            made.append(output)
            continue
        chain = _Chain(node, names, output)
        first, second, depth, *size = output.shape
        chain.last = chain.value((first if of_weight else first * depth, second, *size))
        made.append(chain.last)
        if of_weight:
            chain.reshape(*output.shape)
        else:
            _to_volumes(chain, count, whole=True)
        after += chain.end(output)
    name = names.free(f"{node.name}.of_planes")
    yield written(node, image, name=name, outputs=tuple(made))
    yield from after


def norm_by_planes(graph: Graph) -> Graph:
    """Let batch norm in training, and its gradient, see the planes of volumes: the statistics are
    those of all elements of a channel."""
    graph = lenient(graph)
    values, names, whole = graph.values(), Names(graph), has_whole_convolutions(graph)
    replaced: dict[int, tuple[Node, ...]] = {}
    for position, node in enumerate(graph.nodes):
        output = node.outputs[0]
        if node.op not in NORMS or output is None or len(output.shape) != AXES + 2:
            continue
        chain, seen = _Chain(node, names, output), dict[str, str]()
        for name in dict.fromkeys(node.references()):
            if len(values[name].shape) == AXES + 2:
                chain.last = values[name]
                _to_planes(chain, whole)
                seen[name] = chain.last.name
        made = chain.value(chain.last.shape)
        normed = msgspec.structs.replace(
            with_names(node, seen), outputs=(made, *node.outputs[1:]), name=made.name
        )
        chain.nodes.append(normed)
        chain.last = made
        _to_volumes(chain, output.shape[0], whole)
        replaced[position] = tuple(chain.end(output))
    return rewritten(graph, replaced) if replaced else graph


def _to_planes(chain: _Chain, whole: bool) -> None:
    """whole: one volume after the other."""
    chain.permute(*((0, 2, 1, 3, 4) if whole else (2, 0, 1, 3, 4)))
    one, other, *others = chain.last.shape
    chain.reshape(one * other, *others)


def _to_volumes(chain: _Chain, count: int, whole: bool) -> None:
    planes, *others = chain.last.shape
    depth = planes // count
    chain.reshape(*((count, depth) if whole else (depth, count)), *others)
    chain.permute(*((0, 2, 1, 3, 4) if whole else (1, 2, 0, 3, 4)))


def pool_by_planes(graph: Graph) -> Graph:
    """Make each max pooling of volumes one or two of images, every plane and then the planes over
    one another, and its gradient likewise. Where elements are equal, the same one counts as in a
    volume: the first of the first plane."""
    graph = lenient(graph)
    links, names, side_by_side = Links(graph), Names(graph), has_whole_convolutions(graph)
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


class _Chain:
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


class _Pooled:
    """A pooling of volumes [N, C, D, H, W] as poolings of images."""

    def __init__(
        self, node: Node, whole: MaxPool, x: Value, names: Names, side_by_side: bool
    ) -> None:
        self._names, self._whole, self._shape = names, whole, x.shape
        self._side_by_side = side_by_side
        self.stages: list[_Stage] = []
        chain = _Chain(node, names, x)
        count = x.shape[0]
        _to_planes(chain, side_by_side)
        self._pool(chain, 1, 3)
        _to_volumes(chain, count, side_by_side)
        if self._has_depth:
            height, width = chain.last.shape[3:]
            self._to_columns(chain)
            self._pool(chain, 0, 1)
            self._from_columns(chain, chain.last.shape[2], height, width)
        output = node.outputs[0]
        self.nodes = chain.end(output) if output is not None else chain.nodes

    def _to_columns(self, chain: _Chain) -> None:
        """Volumes as images whose rows are planes: one of all volumes beside one another, or one
        for each."""
        count, channels, depth, height, width = chain.last.shape
        if self._side_by_side:
            chain.reshape(count, channels, depth, height * width)
        else:
            chain.permute(1, 2, 0, 3, 4)
            chain.reshape(1, channels, depth, count * height * width)

    def _from_columns(self, chain: _Chain, depth: int, height: int, width: int) -> None:
        count, channels = self._shape[:2]
        if self._side_by_side:
            chain.reshape(count, channels, depth, height, width)
        else:
            chain.reshape(channels, depth, count, height, width)
            chain.permute(2, 0, 1, 3, 4)

    @property
    def _has_depth(self) -> bool:
        whole = self._whole
        return (whole.kernel[0], whole.stride[0], whole.padding[0]) != (1, 1, 0)

    def _pool(self, chain: _Chain, first: int, end: int) -> None:
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
        chain = _Chain(node, self._names, gradient)
        if self._has_depth:
            self._to_columns(chain)
            self._back(chain, self.stages[1])
            self._from_columns(chain, self._shape[2], *gradient.shape[3:])
        _to_planes(chain, self._side_by_side)
        self._back(chain, self.stages[0])
        _to_volumes(chain, self._shape[0], self._side_by_side)
        output = node.outputs[0]
        return chain.end(output) if output is not None else chain.nodes

    def _back(self, chain: _Chain, stage: _Stage) -> None:
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
