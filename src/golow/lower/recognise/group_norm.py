"""Group norm and instance norm of images, kept on images: what they unfold to otherwise, norms of
rows, would need the channels of a group side by side in memory."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from golow.lower.ir.graph import Graph, Node, Ref, Value
from golow.lower.ir.operator import Operator, written
from golow.lower.ir.rewriting import Links, Names, rewritten
from golow.lower.ir.spelling import Call
from golow.lower.operators.binary import Binary, Function
from golow.lower.operators.group_norm import GroupMoments, GroupNormGradients
from golow.lower.operators.reshape import Reshape

# By the argument that is the number of groups; instance norm has one for each channel.
GROUPS = {
    "aten.group_norm.default": "num_groups",
    "aten.native_group_norm.default": "group",
    "aten.native_group_norm_backward.default": "group",
    "aten.instance_norm.default": "",
}
# Instance norm in training: batch norm of one image that has the channels of all.
OF_ONE_IMAGE = "aten._native_batch_norm_legit.no_stats"
# By the argument that is the mean.
BACKWARD = {
    "aten.native_group_norm_backward.default": "mean",
    "aten.native_batch_norm_backward.default": "save_mean",
}
VIEWS = ("aten.view.default", "aten.reshape.default", "aten._unsafe_view.default")

Shape = tuple[int, ...]


def keep_group_norm(graph: Graph) -> Graph:
    """Write group norm and instance norm of images [N, C, H, W] as moments of groups and functions
    of elements, forward and backward; volumes are images whose rows are those of all planes. What
    is left is unfolded."""
    links, names = Links(graph), Names(graph)
    replaced: dict[int, tuple[Node, ...]] = {}
    renamed: dict[str, str] = {}
    known: dict[str, _Kept] = {}  # by the mean that ATen returns
    for position, node in enumerate(graph.nodes):
        if node.op in BACKWARD:
            mean = Call(node, links).given(BACKWARD[node.op])
            if isinstance(mean, Ref) and mean.name in known:
                kept = known[mean.name]
                replaced[position] = kept.backward(node, links)
                renamed |= kept.views_back(node, links)
        elif (norm := _norm(node, links)) is not None:
            kept = _Kept(norm, names)
            replaced[position] = kept.forward(node, Call(node, links))
            renamed |= kept.views_back(node, links)
            known |= {value.name: kept for value in node.outputs[1:2] if value is not None}
    return rewritten(graph, replaced, renamed)


class _Norm(NamedTuple):
    """A norm of groups of an image's channels. given: the shape of x, as an image of this shape.
    vectors: the shape of weight and bias as the image sees them."""

    x: Ref
    given: Shape
    shape: Shape
    groups: int
    vectors: Shape


def _norm(node: Node, links: Links) -> _Norm | None:
    """The norm of images that a call is, if nothing but its own gradient reads its statistics."""
    if node.op not in (*GROUPS, OF_ONE_IMAGE):
        return None
    call = Call(node, links)
    of_one = node.op == OF_ONE_IMAGE
    x = _source(call.ref("input"), links) if of_one else call.ref("input")
    value = links.values[x.name]
    if len(value.shape) not in (4, 5) or value.dtype != "float32" or 0 in value.shape:
        return None
    images, channels, *pixels = value.shape
    if of_one and call.value("input").shape != (1, images * channels, *pixels):
        return None
    if any(name in call.names and not call.flag(name) for name in ("use_input_stats", "training")):
        return None
    kept = [other.name for other in node.outputs[1:] if other is not None]
    readers = {links.nodes[p].op for name in kept for p in links.readers[name]}
    if node.outputs[0] is None or readers - {*BACKWARD} or links.returned.intersection(kept):
        return None
    number = GROUPS.get(node.op)
    groups = call.integer(number) if number else channels
    *height, width = pixels
    image = (images, channels, math.prod(height), width)
    return _Norm(x, value.shape, image, groups, (images if of_one else 1, channels, 1, 1))


def _source(x: Ref, links: Links) -> Ref:
    """Source of a view."""
    maker = links.made_by(x, *VIEWS)
    return x if maker is None else Call(links.nodes[maker], links).ref("self")


class _Kept:
    """Writes the nodes that take the place of a norm, and of its gradient."""

    def __init__(self, norm: _Norm, names: Names) -> None:
        self._norm, self._names = norm, names
        self._of_channels = (*norm.shape[:2], 1, 1)
        self._nodes: list[Node] = []
        self._x = self._mean = self._deviation = self._image = norm.x  # until they exist

    def forward(self, node: Node, call: Call) -> tuple[Node, ...]:
        """((x - mean) * deviation) * weight + bias."""
        self._node, self._nodes = node, []
        norm, groups = self._norm, self._norm.groups
        x = self._x = self._seen(norm.x, norm.given, norm.shape)
        made = GroupMoments(x=x, groups=groups, epsilon=call.number("eps"))
        self._mean, self._deviation = self._add(made, self._of_channels, self._of_channels)
        result = self._combine("subtract", x, self._mean)
        result = self._combine("multiply", result, self._deviation)
        if (weight := self._vector(call, "weight")) is not None:
            result = self._combine("multiply", result, weight)
        if (bias := self._vector(call, "bias")) is not None:
            result = self._combine("add", result, bias)
        self._give(0, result)
        return tuple(self._nodes)

    def backward(self, node: Node, links: Links) -> tuple[Node, ...]:
        """gradient * factor + (x - mean) * slope + offset, and the gradients of the vectors. What
        comes from whole groups is the second operand everywhere, so that nothing can be computed,
        and stored, before them."""
        self._node, self._nodes = node, []
        call = Call(node, links)
        x, (_, _, shape, groups, vectors) = self._x, self._norm
        of_one = vectors[0] > 1  # a weight for each channel of each image
        gradient = self._as_image(call.ref("grad_out"), links)
        made = GroupNormGradients(
            gradient=gradient,
            x=x,
            mean=self._mean,
            deviation=self._deviation,
            weight=None if of_one else call.ref_or_none("weight"),
            groups=groups,
        )
        of_x, of_weight, of_bias = (value is not None for value in node.outputs)
        needed = [*[of_x] * 3, *(read and not of_one for read in (of_weight, of_bias))]
        needed += [read and of_one for read in (of_weight, of_bias)]
        shapes = (*[self._of_channels] * 3, *[shape[1:2]] * 2, *[shape[:2]] * 2)
        factor, slope, offset, *sums = self._add(made, *shapes, needed=needed)
        if of_x:
            along = self._combine("subtract", x, self._mean)
            along = self._combine("add", self._combine("multiply", along, slope), offset)
            result = self._combine("add", self._combine("multiply", gradient, factor), along)
            if of_one and (weight := self._vector(call, "weight")) is not None:
                result = self._combine("multiply", result, weight)
            self._give(0, result)
        self._give(1, sums[2 if of_one else 0])
        self._give(2, sums[3 if of_one else 1])
        return tuple(self._nodes)

    def views_back(self, node: Node, links: Links) -> dict[str, str]:
        """Values that see what the call gave as images again: they are its first value's image, by
        names. Without them the functions before and after a norm would not be neighbours."""
        given = node.outputs[0]
        if given is None or given.shape == self._norm.shape or len(self._norm.given) > 4:
            return {}
        readers = [links.nodes[p] for p in links.readers[given.name]]
        views = [other.outputs[0] for other in readers if other.op in VIEWS]
        return {
            view.name: self._image.name for view in views if view and view.shape == self._norm.shape
        }

    def _as_image(self, x: Ref, links: Links) -> Ref:
        """A value, or what it is a view of, in the image's shape."""
        given, shape = self._norm.given, self._norm.shape
        for seen in (x, _source(x, links)):
            if links.values[seen.name].shape == given:
                return self._seen(seen, given, shape)
        return self._seen(x, links.values[x.name].shape, shape)

    def _vector(self, call: Call, name: str) -> Ref | None:
        """A vector of the channels, as images see it."""
        if name not in call.names or call.ref_or_none(name) is None:
            return None
        return self._seen(call.ref(name), call.value(name).shape, self._norm.vectors)

    def _seen(self, x: Ref, shape: Shape, wanted: Shape) -> Ref:
        return x if shape == wanted else self._add(Reshape(x=x, shape=wanted), wanted)[0]

    def _combine(self, function: Function, a: Ref, b: Ref) -> Ref:
        return self._add(Binary(function=function, a=a, b=b), self._norm.shape)[0]

    def _add(
        self, operator: Operator, *shapes: Shape, needed: Sequence[bool] = ()
    ) -> tuple[Ref, ...]:
        """Add a node; returns its values. needed: which of them are read; all if empty."""
        short = operator.op().split(".")[1]
        values = [
            Value(name=self._names.free(f"{self._node.name}_{short}"), shape=shape, dtype="float32")
            for shape in shapes
        ]
        pairs = zip(values, needed or (True,) * len(values), strict=True)
        outputs = tuple(value if read else None for value, read in pairs)
        node = written(self._node, operator, name=values[0].name, outputs=outputs)
        self._nodes.append(node)
        return tuple(Ref(name=value.name) for value in values)

    def _give(self, index: int, made: Ref) -> None:
        """Make this value the call's of that index, in its shape."""
        wanted = self._node.outputs[index]
        if wanted is None:
            return
        self._image = made if index == 0 else self._image
        shapes = {v.name: v.shape for node in self._nodes for v in node.outputs if v is not None}
        made = self._seen(made, shapes[made.name], wanted.shape)
        for position, node in enumerate(self._nodes):
            outputs = tuple(wanted if v and v.name == made.name else v for v in node.outputs)
            name = wanted.name if node.name == made.name else node.name
            self._nodes[position] = msgspec.structs.replace(node, outputs=outputs, name=name)
