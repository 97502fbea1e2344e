"""The pass that keeps group norm of images on images: layer norm of each group, which it unfolds to
otherwise, would need the channels of a group side by side in memory."""

from __future__ import annotations

import msgspec

from golow.lower.graph import Graph, Node, Ref, Value
from golow.lower.operator import Operator, written
from golow.lower.operators.binary import Binary, Function
from golow.lower.operators.group_norm import GroupMoments, GroupNormGradients
from golow.lower.operators.reshape import Reshape
from golow.lower.rewriting import Links, Names, rewritten
from golow.lower.spelling import Call

WHOLE, FORWARD = "aten.group_norm.default", "aten.native_group_norm.default"
BACKWARD = "aten.native_group_norm_backward.default"

Shape = tuple[int, ...]


def keep_group_norm(graph: Graph) -> Graph:
    """Write group norm of images [N, C, H, W] as moments of groups and functions of elements,
    forward and backward. What is left is unfolded."""
    links, names = Links(graph), Names(graph)
    replaced: dict[int, tuple[Node, ...]] = {}
    moments: dict[str, tuple[Ref, Ref]] = {}  # by the mean that ATen returns
    for position, node in enumerate(graph.nodes):
        if node.op in (WHOLE, FORWARD) and _is_kept(node, links):
            kept = _Kept(node, Call(node, links), names)
            found = kept.forward()
            if node.op == FORWARD and node.outputs[1] is not None:
                moments[node.outputs[1].name] = found
            replaced[position] = tuple(kept.nodes)
        elif node.op == BACKWARD and (mean := Call(node, links).ref("mean").name) in moments:
            kept = _Kept(node, Call(node, links), names)
            kept.backward(*moments[mean])
            replaced[position] = tuple(kept.nodes)
    return rewritten(graph, replaced)


def _is_kept(node: Node, links: Links) -> bool:
    """Whether it is of images, and nothing but its own gradient reads mean and deviation."""
    x = Call(node, links).value("input")
    if len(x.shape) != 4 or x.dtype != "float32" or 0 in x.shape or node.outputs[0] is None:
        return False
    kept = [value.name for value in node.outputs[1:] if value is not None]
    readers = {links.nodes[p].op for name in kept for p in links.readers[name]}
    return readers <= {BACKWARD} and links.returned.isdisjoint(kept)


class _Kept:
    """The nodes that take the place of a call."""

    def __init__(self, node: Node, call: Call, names: Names) -> None:
        self._node, self._call, self._names = node, call, names
        self.nodes: list[Node] = []
        self._x, self._shape = call.ref("input"), call.value("input").shape
        self._of_channels = (*self._shape[:2], 1, 1)
        self._weight = self._vector("weight")

    def forward(self) -> tuple[Ref, Ref]:
        """((x - mean) * deviation) * weight + bias; returns mean and deviation."""
        call, whole = self._call, self._node.op == WHOLE
        groups = call.integer("num_groups" if whole else "group")
        made = GroupMoments(x=self._x, groups=groups, epsilon=call.number("eps"))
        mean, deviation = self._add_several(made, self._of_channels, self._of_channels)
        result = self._normed(mean, deviation)
        if self._weight is not None:
            result = self._add("multiply", result, self._weight)
        if (bias := self._vector("bias")) is not None:
            result = self._add("add", result, bias)
        self._give(0, result)
        return mean, deviation

    def backward(self, mean: Ref, deviation: Ref) -> None:
        """gradient * factor + (x - mean) * slope + offset, and the gradients of the vectors. What
        comes from whole groups is the second operand everywhere, so that nothing can be computed,
        and stored, before them."""
        gradient, groups = self._call.ref("grad_out"), self._call.integer("group")
        made = GroupNormGradients(
            gradient=gradient,
            x=self._x,
            mean=mean,
            deviation=deviation,
            weight=self._call.ref_or_none("weight"),
            groups=groups,
        )
        vector = (self._shape[1],)
        factor, slope, offset, of_weight, of_bias = self._add_several(
            made, *(self._of_channels,) * 3, vector, vector
        )
        if self._node.outputs[0] is not None:
            centred = self._add("subtract", self._x, mean)
            along = self._add("add", self._add("multiply", centred, slope), offset)
            self._give(0, self._add("add", self._add("multiply", gradient, factor), along))
        self._give(1, of_weight)
        self._give(2, of_bias)

    def _normed(self, mean: Ref, deviation: Ref) -> Ref:
        return self._add("multiply", self._add("subtract", self._x, mean), deviation)

    def _vector(self, name: str) -> Ref | None:
        """A vector of the channels, as images see it."""
        if name not in self._call.names or self._call.ref_or_none(name) is None:
            return None
        shape = (1, self._shape[1], 1, 1)
        (seen,) = self._add_several(Reshape(x=self._call.ref(name), shape=shape), shape)
        return seen

    def _add(self, function: Function, a: Ref, b: Ref) -> Ref:
        (made,) = self._add_several(Binary(function=function, a=a, b=b), self._shape)
        return made

    def _add_several(self, operator: Operator, *shapes: Shape) -> tuple[Ref, ...]:
        short = operator.op().split(".")[1]
        values = tuple(
            Value(name=self._names.free(f"{self._node.name}_{short}"), shape=shape, dtype="float32")
            for shape in shapes
        )
        name = values[0].name
        self.nodes.append(written(self._node, operator, name=name, outputs=values))
        return tuple(Ref(name=value.name) for value in values)

    def _give(self, index: int, made: Ref) -> None:
        """Make this value the call's of that index."""
        wanted = self._node.outputs[index]
        if wanted is None:
            return
        for position, node in enumerate(self.nodes):
            outputs = tuple(wanted if v and v.name == made.name else v for v in node.outputs)
            name = wanted.name if node.name == made.name else node.name
            self.nodes[position] = msgspec.structs.replace(node, outputs=outputs, name=name)
