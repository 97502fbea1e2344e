"""Passes that fuse: padding, bias, residual additions and activations go into the convolution or
linear layer before them, so that a value is written once instead of two to four times.

Both vendor levels start from what these passes leave; ``operations.py`` says what it means.
"""

from __future__ import annotations

import msgspec

from golow.lower.graph import Argument, Graph, Node, Ref, Value
from golow.lower.rewriting import (
    Links,
    absorbing,
    changes_in_place,
    given,
    pair,
    result,
    rewritten,
    with_names,
)

CONVOLUTION, LINEAR, ADD = "golow.convolution", "golow.linear", "golow.add"

# Position of the residual among the arguments of both; the activation is the last one.
RESIDUAL = 3

VIEWS = frozenset(
    f"aten.{name}"
    for name in "view.default reshape.default flatten.using_ints t.default expand.default "
    "transpose.int permute.default unsqueeze.default squeeze.dim detach.default alias.default "
    "slice.Tensor select.int _unsafe_view.default squeeze.default squeeze.dims narrow.default "
    "view_as.default expand_as.default numpy_T.default mT.default unflatten.int movedim.int "
    "swapaxes.default diagonal.default chunk.default split.Tensor split_with_sizes.default "
    "unbind.int".split()
)
# In inference dropout hands on its argument; contiguous does where there is nothing to do.
MAYBE_VIEWS = VIEWS | {"aten.dropout.default", "aten.contiguous.default"}
RESHAPES = ("aten.view.default", "aten._unsafe_view.default")
COPIES = frozenset(("aten.clone.default", "aten.contiguous.default", "aten.detach.default"))


def make_functional(graph: Graph) -> Graph:
    """Replace in-place operations by those that make a new value.

    Who read the changed value by its old name reads the new one. An operation that changes what
    another name still looks at, or a parameter or buffer, stays as it is, and the levels refuse it.
    """
    sharing = _Sharing(graph)
    names: dict[str, str] = {}
    nodes: list[Node] = []
    for position, old in enumerate(graph.nodes):
        node = with_names(old, names)
        changed = old.arguments[0] if changes_in_place(old) else None
        if isinstance(changed, Ref) and sharing.sees_it_alone(changed.name, position):
            packet, _, overload = old.op.rpartition(".")
            node = msgspec.structs.replace(node, op=f"{packet.removesuffix('_')}.{overload}")
            names |= dict.fromkeys(sharing.names_of(changed.name), result(old))
        sharing.add(old)
        nodes.append(node)
    outputs = tuple(
        msgspec.structs.replace(item, name=names.get(item.name, item.name))
        for item in graph.outputs
    )
    return msgspec.structs.replace(graph, nodes=tuple(nodes), outputs=outputs)


class _Sharing:
    """Which names look at the same memory, as far as the nodes added until now say.

    memory: the value that first had it; tensor: the same, but a view is a tensor of its own.
    """

    def __init__(self, graph: Graph) -> None:
        self.memory = {item.value.name: item.value.name for item in graph.inputs}
        self.tensor = dict(self.memory)
        self.state = {i.value.name for i in graph.inputs if i.kind in ("parameter", "buffer")}
        self.last_read = {n: i for i, node in enumerate(graph.nodes) for n in node.references()}
        self.last_read |= {item.name: len(graph.nodes) for item in graph.outputs}

    def add(self, node: Node) -> None:
        source = node.arguments[0] if node.arguments else None
        for name in (value.name for value in node.outputs if value is not None):
            self.memory[name] = self.tensor[name] = name
            if isinstance(source, Ref) and node.op in MAYBE_VIEWS:
                self.memory[name] = self.memory[source.name]
            elif isinstance(source, Ref) and changes_in_place(node):
                self.memory[name] = self.memory[source.name]
                self.tensor[name] = self.tensor[source.name]

    def names_of(self, name: str) -> list[str]:
        """All names of the tensor."""
        return [other for other, first in self.tensor.items() if first == self.tensor[name]]

    def sees_it_alone(self, name: str, position: int) -> bool:
        """Whether the tensor's memory is no state, and no other tensor there is read later."""
        memory, tensor = self.memory[name], self.tensor[name]
        return memory not in self.state and all(
            self.last_read.get(other, -1) <= position
            for other, first in self.memory.items()
            if first == memory and self.tensor[other] != tensor
        )


def drop_copies(graph: Graph) -> Graph:
    """Remove copies: in a graph without in-place operations a copy equals its source."""
    if any(changes_in_place(node) for node in graph.nodes):
        return graph
    names: dict[str, str] = {}
    for node in graph.nodes:
        source = node.arguments[0] if node.arguments else None
        if node.op in COPIES and isinstance(source, Ref):
            names[result(node)] = names.get(source.name, source.name)
    replaced: dict[int, tuple[Node, ...]] = {}
    for position, node in enumerate(graph.nodes):
        source = node.arguments[0] if node.arguments else None
        if result(node) in names:
            replaced[position] = ()
        elif node.op in RESHAPES and isinstance(source, Ref) and source.name in names:
            # Of the copy it was a view; its source may lie in another order.
            new = msgspec.structs.replace(node, op="aten.reshape.default")
            replaced[position] = (new,)
    return rewritten(graph, replaced, names)


def name_convolutions(graph: Graph) -> Graph:
    """Write every 2-d convolution and linear layer as golow's own operation, which can fuse."""
    links = Links(graph)
    replaced = {}
    for position, node in enumerate(graph.nodes):
        new = _convolution(node, links) or _linear(node, links)
        if new is not None:
            replaced[position] = (new,)
    return rewritten(graph, replaced)


def _convolution(node: Node, links: Links) -> Node | None:
    if node.outputs[0] is None or len(node.outputs[0].shape) != 4:
        return None  # of one dimension or three, or one image without a batch
    if node.op == "aten.conv2d.default":
        x, weight, bias, stride, padding, dilation, groups = given(
            node, "input weight bias stride padding dilation groups", None, (1,), (0,), (1,), 1
        )
    elif node.op == "aten.convolution.default":
        x, weight, bias, stride, padding, dilation, transposed, _, groups = node.arguments
        if transposed:
            return None
    elif node.op == "aten.conv2d.padding":
        x, weight, bias, stride, how, dilation, groups = given(
            node, "input weight bias stride padding dilation groups", None, (1,), "valid", (1,), 1
        )
        padding = how
    else:
        return None
    if isinstance(padding, str):
        sides = _named_padding(padding, weight, pair(dilation), links.values)
    else:
        sides = pair(padding) * 2
    arguments = (x, weight, bias, None, pair(stride), sides, pair(dilation), groups, ())
    return msgspec.structs.replace(node, op=CONVOLUTION, arguments=arguments, keywords={})


def _named_padding(
    name: str, weight: Argument, dilation: tuple[int, int], values: dict[str, Value]
) -> tuple[int, int, int, int]:
    """(top, left, bottom, right) of "valid" and "same"; what cannot be halved goes behind."""
    assert isinstance(weight, Ref)  # noqa: S101
    kernel = values[weight.name].shape[2:]
    total = [d * (k - 1) if name == "same" else 0 for d, k in zip(dilation, kernel, strict=True)]
    top, left = total[0] // 2, total[1] // 2
    return top, left, total[0] - top, total[1] - left


def _linear(node: Node, links: Links) -> Node | None:
    if node.op == "aten.linear.default":
        x, weight, bias = given(node, "input weight bias", None)
    elif node.op == "aten.addmm.default" and not node.keywords:
        bias, x, transposed = node.arguments
        position = links.made_by(transposed, "aten.t.default")
        if position is None or not isinstance(bias, Ref) or len(links.values[bias.name].shape) != 1:
            return None
        weight = links.nodes[position].arguments[0]
    else:
        return None
    return msgspec.structs.replace(
        node, op=LINEAR, arguments=(x, weight, bias, None, ()), keywords={}
    )


def fuse_padding(graph: Graph) -> Graph:
    """Put zero padding into the convolution that reads it; its four sides may differ."""
    links = Links(graph)
    replaced: dict[int, tuple[Node, ...]] = {}
    for position, node in enumerate(graph.nodes):
        if node.op != CONVOLUTION:
            continue
        maker = links.made_by(node.arguments[0], "aten.pad.default", "aten.constant_pad_nd.default")
        sides = _zero_padding(links.nodes[maker]) if maker is not None else None
        if maker is None or sides is None:
            continue
        own = node.arguments[5]
        assert isinstance(own, tuple)  # noqa: S101
        total = tuple(a + b for a, b in zip(own, sides, strict=True))  # type: ignore[operator]
        arguments = (links.nodes[maker].arguments[0], *node.arguments[1:5], total)
        arguments += node.arguments[6:]
        new = msgspec.structs.replace(node, arguments=arguments)
        if links.only_reader(result(links.nodes[maker])) == position:  # else it stays as well
            new = msgspec.structs.replace(new, absorbed=absorbing(node, links.nodes[maker]))
        replaced[position] = (new,)
    return rewritten(graph, replaced)


def _zero_padding(node: Node) -> tuple[int, int, int, int] | None:
    """(top, left, bottom, right), None unless it pads the last two dimensions with zeros."""
    if node.op == "aten.pad.default":
        _, sides, mode, value = given(node, "self pad mode value", "constant", None)
    else:
        (_, sides, value), mode = given(node, "self pad value", 0), "constant"
    if mode != "constant" or value not in (None, 0) or not isinstance(sides, tuple):
        return None
    amounts = [side for side in sides if isinstance(side, int) and side >= 0]
    if len(amounts) != len(sides) or len(sides) not in (2, 4):
        return None
    left, right, top, bottom = (*amounts, 0, 0)[:4]
    return top, left, bottom, right


def fuse_residual(graph: Graph) -> Graph:
    """Put the addition of a value of the same shape into the convolution or linear layer that
    makes the other one, where nobody else reads that."""
    links = Links(graph)
    values = graph.values()
    replaced: dict[int, tuple[Node, ...]] = {}
    for position, node in enumerate(graph.nodes):
        if node.op != "aten.add.Tensor" or node.keywords or len(node.arguments) != 2:
            continue
        made = [
            (maker, other)
            for one, other in (node.arguments, node.arguments[::-1])
            if isinstance(one, Ref) and isinstance(other, Ref) and one.name != other.name
            and values[one.name] == msgspec.structs.replace(values[other.name], name=one.name)
            and links.only_reader(one.name) == position
            and (maker := links.made_by(one, CONVOLUTION, LINEAR)) is not None
            and maker not in replaced
            and links.nodes[maker].arguments[RESIDUAL] is None
            and links.nodes[maker].arguments[-1] == ()
        ]  # fmt: skip
        if made:
            # Of two that could take it the later one: its residual is then at hand.
            maker, other = max(made, key=lambda item: item[0])
            first = links.nodes[maker]
            arguments = (*first.arguments[:RESIDUAL], other, *first.arguments[RESIDUAL + 1 :])
            fused = msgspec.structs.replace(
                first,
                arguments=arguments,
                outputs=node.outputs,
                absorbed=absorbing(first, node),
            )
            replaced |= {maker: (), position: (fused,)}
    return rewritten(graph, replaced)


def fuse_activation(graph: Graph) -> Graph:
    """Put an activation into the convolution, linear layer or addition that it alone reads."""
    links = Links(graph)
    values = graph.values()
    replaced: dict[int, tuple[Node, ...]] = {}
    for position, node in enumerate(graph.nodes):
        activation = activation_of(node)
        if activation is None:
            continue
        maker = links.made_by(node.arguments[0], CONVOLUTION, LINEAR, ADD, "aten.add.Tensor")
        if maker is None or maker in replaced:
            continue
        first = links.nodes[maker]
        if links.only_reader(result(first)) != position:
            continue
        if first.op == "aten.add.Tensor":
            if not _adds_alike(first, values):
                continue
            first = msgspec.structs.replace(first, op=ADD, arguments=(*first.arguments, ()))
        if first.arguments[-1] == ():
            arguments = (*first.arguments[:-1], activation)
            fused = msgspec.structs.replace(
                first,
                arguments=arguments,
                outputs=node.outputs,
                absorbed=absorbing(first, node),
            )
            replaced |= {maker: (), position: (fused,)}
    return rewritten(graph, replaced)


def _adds_alike(node: Node, values: dict[str, Value]) -> bool:
    a, b = node.arguments[:2]
    if len(node.arguments) != 2 or node.keywords:
        return False
    if not (isinstance(a, Ref) and isinstance(b, Ref)):
        return False
    return values[a.name].shape == values[b.name].shape


def activation_of(node: Node) -> tuple[str | float, ...] | None:
    """The node as an activation of `operations.activate`; None if it is none."""
    packet = node.op.removeprefix("aten.").rpartition(".")[0]
    if packet in ("relu", "tanh", "sigmoid", "silu", "hardswish", "hardsigmoid"):
        return (packet,)
    if packet == "relu6":
        return ("clip", 0.0, 6.0)
    if packet == "hardtanh":
        _, low, high = given(node, "self min_val max_val", -1, 1)
        return clip(low, high)
    if packet == "gelu":
        _, approximate = given(node, "self approximate", "none")
        return ("gelu_tanh",) if approximate == "tanh" else ("gelu",)
    if packet == "elu":
        _, alpha, scale, input_scale = given(node, "self alpha scale input_scale", 1, 1, 1)
        return ("elu", _float(alpha)) if (scale, input_scale) == (1, 1) else None
    return None


def clip(low: Argument, high: Argument) -> tuple[str | float, ...] | None:
    """The activation between these bounds; None where one is infinite."""
    if isinstance(low, int | float) and isinstance(high, int | float):
        return ("clip", float(low), float(high))
    return None


def _float(argument: Argument) -> float:
    assert isinstance(argument, int | float)  # noqa: S101
    return float(argument)
