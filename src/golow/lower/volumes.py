"""Passes that keep convolutions and pooling of volumes whole, for a level whose library computes
them. What is left is unfolded into images (`golow.lower.decompositions`)."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import msgspec

from golow.lower.decomposition import lenient
from golow.lower.graph import Graph, Node, Ref, Value
from golow.lower.operator import Operator, written
from golow.lower.operators import convolution, max_pool
from golow.lower.operators.batch_norm import BatchNormInference
from golow.lower.operators.binary import Binary
from golow.lower.operators.convolution import Convolution, ConvolutionBackward
from golow.lower.operators.fill import Fill
from golow.lower.operators.reduce import Reduce
from golow.lower.operators.reshape import Reshape
from golow.lower.patterns import Found, Fusion, Match, Rule, fuse, node
from golow.lower.rewriting import Links, Names, rewritten
from golow.lower.spelling import Call

AXES = 3
ALIGNED = 8  # channels; 16 bytes of 16-bit numbers
BACKWARD = "aten.convolution_backward.default"
SPELLINGS: dict[str, Callable[[Call, int], Operator | None]] = {
    "aten.conv3d.default": convolution.of_axes,
    "aten.convolution.default": convolution.of_axes,
    "aten.conv3d.padding": convolution.padded_by_name_of_axes,
    BACKWARD: convolution.backward_of_axes,
    "aten.max_pool3d.default": max_pool.of_axes,
    "aten.max_pool3d_with_indices.default": max_pool.of_axes,
    "aten.max_pool3d_with_indices_backward.default": max_pool.backward_of_axes,
}
TRANSPOSED = ("aten.conv_transpose3d.input", "aten.convolution.default")


def keep_volumes(graph: Graph) -> Graph:
    """Make convolutions and max pooling of volumes, and their gradients, one operator. A transposed
    convolution is the gradient of one."""
    graph = lenient(graph)
    links, names, replaced = Links(graph), Names(graph), dict[int, tuple[Node, ...]]()
    for position, this in enumerate(graph.nodes):
        spelled = SPELLINGS.get(this.op)
        if spelled is None and this.op not in TRANSPOSED:
            continue
        call = Call(this, links)
        operator = spelled(call, AXES) if spelled is not None else None
        if operator is not None:
            replaced[position] = (written(this, operator),)
        elif this.op in TRANSPOSED and _is_transposed(call):
            replaced[position] = tuple(_transposed(this, call, names))
        elif this.op == BACKWARD and _is_transposed(call) and _is_whole(call):
            replaced[position] = tuple(_back_through_transposed(this, call, names))
    return rewritten(graph, replaced)


def keep_plain_convolutions(graph: Graph) -> Graph:
    """Make convolutions of volumes and their gradients one operator each, for a level whose library
    computes those without groups, of channels in multiples of `ALIGNED`; the model's input may have
    others. Those of single planes stay, whatever they are. Where another one does not fit, none is
    kept: the planes of volumes lie in another order where convolutions are unfolded."""
    graph = lenient(graph)
    names, replaced = Names(graph), dict[int, tuple[Node, ...]]()
    for position, this, call in convolutions(graph):
        transposed = this.op in (*TRANSPOSED, BACKWARD) and _is_transposed(call)
        operator = None if transposed else SPELLINGS[this.op](call, AXES)
        if isinstance(operator, Convolution | ConvolutionBackward) and is_of_planes(call, operator):
            continue
        known = operator is not None or (transposed and (this.op != BACKWARD or _is_whole(call)))
        if not known or not _fits(graph, call):
            return graph
        if operator is not None:
            replaced[position] = (written(this, operator),)
        else:
            unfold = _back_through_transposed if this.op == BACKWARD else _transposed
            replaced[position] = tuple(unfold(this, call, names))
    return rewritten(graph, replaced) if replaced else graph


def convolutions(graph: Graph) -> Iterator[tuple[int, Node, Call]]:
    """The calls of convolutions of volumes and of their gradients, with their positions."""
    links = Links(graph)
    for position, this in enumerate(graph.nodes):
        if "conv" in this.op and (this.op in SPELLINGS or this.op in TRANSPOSED):
            call = Call(this, links)
            if call.rank("input") == AXES + 2:
                yield position, this, call


def is_of_planes(call: Call, layer: Convolution | ConvolutionBackward) -> bool:
    """Whether a convolution of volumes computes each plane by itself."""
    depth = call.shape("weight")[2]
    return (depth, layer.stride[0], layer.padding[0], layer.padding[AXES]) == (1, 1, 0, 0)


def _fits(graph: Graph, call: Call) -> bool:
    filters, channels, *_ = call.shape("weight")
    given = {item.value.name for item in graph.inputs if item.kind == "input"}
    aligned = channels % ALIGNED == 0 or call.ref("input").name in given
    groups = call.integer("groups") if "groups" in call.names else 1
    return groups == 1 and filters % ALIGNED == 0 and aligned


def has_whole_convolutions(graph: Graph) -> bool:
    """Whether a convolution of volumes is one operator."""
    layers = (Convolution.of(node) for node in graph.nodes)
    return any(layer is not None and len(layer.stride) == AXES for layer in layers)


def _is_transposed(call: Call) -> bool:
    known = "transposed" not in call.names or call.flag("transposed")
    return known and call.rank("input") == AXES + 2


def _transposed(this: Node, call: Call, names: Names) -> Iterator[Node]:
    """The gradient of the convolution whose weight this is; only the shape counts of its x."""
    output, bias = call.output(), call.ref_or_none("bias")
    like = msgspec.structs.replace(output, name=names.free(f"{output.name}.like"))
    fill = Fill(shape=output.shape, value=0.0, dtype=output.dtype)
    yield written(this, fill, name=like.name, outputs=(like,))
    operator = ConvolutionBackward(
        gradient=call.ref("input"),
        x=Ref(name=like.name),
        weight=call.ref("weight"),
        wanted=(True, False, False),
        **convolution.geometry(call, AXES),
    )
    if bias is None:
        yield written(this, operator, outputs=(output, None, None))
        return
    made = msgspec.structs.replace(output, name=names.free(f"{output.name}.volume"))
    yield written(this, operator, name=made.name, outputs=(made, None, None))
    shape = (1, output.shape[1], *(1,) * AXES)
    wide = msgspec.structs.replace(output, name=names.free(f"{output.name}.bias"), shape=shape)
    yield written(this, Reshape(x=bias, shape=shape), name=wide.name, outputs=(wide,))
    added = Binary(function="add", a=Ref(name=made.name), b=Ref(name=wide.name))
    yield written(this, added, outputs=(output,))


def _is_whole(call: Call) -> bool:
    """Whether the convolution of the gradient has as many elements as the input: it has more if
    more was added to the output than the stride leaves open."""
    added, strides = call.sizes("output_padding", AXES), call.sizes("stride", AXES)
    return all(more < stride for more, stride in zip(added, strides, strict=True))


def _back_through_transposed(this: Node, call: Call, names: Names) -> Iterator[Node]:
    """The gradients of a transposed convolution: of its input by the convolution, of its weight as
    the convolution's, with gradient and input exchanged."""
    of_input, of_weight, of_bias = this.outputs
    gradient, x, weight = (call.ref(name) for name in ("grad_output", "input", "weight"))
    where = convolution.geometry(call, AXES)

    def alone(operator: Operator, name: str, outputs: tuple[Value | None, ...]) -> Node:
        new = names.free(f"{this.name}.{name}")
        return written(this, operator, name=new, outputs=outputs)

    if of_input is not None:
        forward = Convolution(x=gradient, weight=weight, **where)
        yield alone(forward, "of_input", (of_input,))
    if of_weight is not None:
        backward = ConvolutionBackward(
            gradient=x, x=gradient, weight=weight, wanted=(False, True, False), **where
        )
        yield alone(backward, "of_weight", (None, of_weight, None))
    if of_bias is not None:
        total = Reduce(function="sum", x=gradient, axes=(0, 2, 3, 4), keep=False)
        yield alone(total, "of_bias", (of_bias,))


def norm_volumes(graph: Graph) -> Graph:
    """Let a batch norm with running statistics see a volume as its convolution makes it, so that it
    can be folded; otherwise it sees an image."""
    return fuse(graph, VOLUME_NORM)


def norm_all_volumes(graph: Graph) -> Graph:
    """The same for every volume, where a batch norm with running statistics is a function of its
    elements."""
    return fuse(graph, ANY_VOLUME_NORM)


def _of_any_volume(match: Match) -> list[Fusion]:
    view, back = match.arguments("view", Reshape), match["back"].output
    if match["view"].shape(view.x) != back.shape:
        return []
    norm = match.arguments("norm", BatchNormInference)
    operator = msgspec.structs.replace(norm, x=view.x)
    return [Fusion(operator, "norm", ("view", "back"), "back", (back,))]


def _of_volume(match: Match) -> list[Fusion]:
    layer, back = match["layer"].output, match["back"].output
    if layer.shape != back.shape:
        return []
    norm = match.arguments("norm", BatchNormInference)
    operator = msgspec.structs.replace(norm, x=Ref(name=layer.name))
    return [Fusion(operator, "norm", ("view", "back"), "back", (back,))]


def _is_of_volumes(found: Found) -> bool:
    return len(found.output.shape) == AXES + 2


VOLUME_NORM = Rule(
    [
        node(
            "back",
            Reshape,
            where=_is_of_volumes,
            x=node(
                "norm",
                BatchNormInference,
                alone=True,
                x=node(
                    "view",
                    Reshape,
                    alone=True,
                    x=node("layer", Convolution, alone=True, where=_is_of_volumes),
                ),
            ),
        )
    ],
    _of_volume,
)

ANY_VOLUME_NORM = Rule(
    [
        node(
            "back",
            Reshape,
            where=_is_of_volumes,
            x=node("norm", BatchNormInference, alone=True, x=node("view", Reshape, alone=True)),
        )
    ],
    _of_any_volume,
)
