"""Passes that fuse: padding, bias, residual additions and activations go into the convolution or
linear layer before them, so that a value is written once instead of two to four times.

Both vendor levels start from what these passes leave; ``operations.py`` says what it means.
"""

from __future__ import annotations

import msgspec

from golow.lower.graph import Argument, Graph, Node, Ref
from golow.lower.rewriting import Links, absorbing, given, pair, result, rewritten

CONVOLUTION, LINEAR, ADD = "golow.convolution", "golow.linear", "golow.add"

# Position of the residual among the arguments; the activation is the last one.
RESIDUAL = {CONVOLUTION: 3, LINEAR: 3}

VIEWS = frozenset(
    f"aten.{name}"
    for name in "view.default reshape.default flatten.using_ints t.default expand.default "
    "transpose.int permute.default unsqueeze.default squeeze.dim detach.default alias.default "
    "slice.Tensor select.int".split()
)
COPIES = frozenset(("aten.clone.default", "aten.contiguous.default", "aten.detach.default"))


def make_functional(graph: Graph) -> Graph:
    """Replace in-place operations by those that make a new value.

    Who read the changed value by its old name reads the new one. An operation that changes what
    another name still looks at stays as it is, and the levels refuse it.
    """
    viewed = {
        node.arguments[0].name
        for node in graph.nodes
        if node.op in VIEWS and isinstance(node.arguments[0], Ref)
    }
    names: dict[str, str] = {}
    nodes: list[Node] = []
    for node in graph.nodes:
        packet, _, overload = node.op.rpartition(".")
        fresh = rewritten(msgspec.structs.replace(graph, nodes=(node,), outputs=()), {}, names)
        node = fresh.nodes[0]
        changed = node.arguments[0] if node.arguments else None
        if packet.endswith("_") and isinstance(changed, Ref) and changed.name not in viewed:
            node = msgspec.structs.replace(node, op=f"{packet.rstrip('_')}.{overload}")
            for old in [old for old, new in names.items() if new == changed.name]:
                names[old] = result(node)
            names[changed.name] = result(node)
        nodes.append(node)
    return rewritten(msgspec.structs.replace(graph, nodes=tuple(nodes)), {}, {})


def drop_copies(graph: Graph) -> Graph:
    """Remove copies: in a graph without in-place operations a copy equals its source."""
    names: dict[str, str] = {}
    for node in graph.nodes:
        source = node.arguments[0] if node.arguments else None
        if node.op in COPIES and isinstance(source, Ref):
            names[result(node)] = names.get(source.name, source.name)
    removed = {i: () for i, node in enumerate(graph.nodes) if result(node) in names}
    return rewritten(graph, removed, names)


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
    if node.op == "aten.conv2d.default":
        x, weight, bias, stride, padding, dilation, groups = given(
            node, "input weight bias stride padding dilation groups", None, (1,), (0,), (1,), 1
        )
    elif node.op == "aten.convolution.default":
        x, weight, bias, stride, padding, dilation, transposed, _, groups = node.arguments
        if transposed or not isinstance(stride, tuple) or len(stride) != 2:
            return None
    else:
        return None
    vertical, horizontal = pair(padding)
    sides = (vertical, horizontal, vertical, horizontal)
    arguments = (x, weight, bias, None, pair(stride), sides, pair(dilation), groups, ())
    return msgspec.structs.replace(node, op=CONVOLUTION, arguments=arguments, keywords={})


def _linear(node: Node, links: Links) -> Node | None:
    if node.op == "aten.linear.default":
        x, weight, bias = given(node, "input weight bias", None)
    elif node.op == "aten.addmm.default" and not node.keywords:
        bias, x, transposed = node.arguments
        position = links.made_by(transposed, "aten.t.default")
        if position is None:
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
        replaced[position] = (msgspec.structs.replace(node, arguments=arguments),)
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
            and links.nodes[maker].arguments[3] is None
            and links.nodes[maker].arguments[-1] == ()
        ]  # fmt: skip
        if made:
            # Of two that could take it the later one: its residual is then at hand.
            maker, other = max(made, key=lambda item: item[0])
            first = links.nodes[maker]
            arguments = (*first.arguments[:3], other, *first.arguments[4:])
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


def _adds_alike(node: Node, values: dict[str, object]) -> bool:
    a, b = node.arguments[:2]
    if len(node.arguments) != 2 or node.keywords:
        return False
    if not (isinstance(a, Ref) and isinstance(b, Ref)):
        return False
    return getattr(values[a.name], "shape", 0) == getattr(values[b.name], "shape", 1)


def activation_of(node: Node) -> tuple[str | float, ...] | None:
    """The node as an activation of `operations.activate`; None if it is none."""
    packet = node.op.removeprefix("aten.").rpartition(".")[0]
    if packet in ("relu", "tanh", "sigmoid", "silu", "hardswish", "hardsigmoid"):
        return (packet,)
    if packet == "relu6":
        return ("clip", 0.0, 6.0)
    if packet == "hardtanh":
        _, low, high = given(node, "self min_val max_val", -1, 1)
        return ("clip", _float(low), _float(high))
    if packet == "gelu":
        _, approximate = given(node, "self approximate", "none")
        return ("gelu_tanh",) if approximate == "tanh" else ("gelu",)
    if packet == "elu":
        _, alpha, scale, input_scale = given(node, "self alpha scale input_scale", 1, 1, 1)
        return ("elu", _float(alpha)) if (scale, input_scale) == (1, 1) else None
    return None


def _float(argument: Argument) -> float:
    assert isinstance(argument, int | float)  # noqa: S101
    return float(argument)
