"""Volumes as operators: keeps their convolutions and pooling whole, for a level whose library
computes them. What is left is unfolded into images (`golow.lower.decompositions`)."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import msgspec

from golow.lower.aten.decomposition import lenient
from golow.lower.ir.graph import Graph, Node, Ref, Value
from golow.lower.ir.operator import Operator, written
from golow.lower.ir.patterns import Fusion, Match, NodeMatch, Rule, fuse, node
from golow.lower.ir.rewriting import Links, Names, rewritten
from golow.lower.ir.spelling import Call
from golow.lower.operators import convolution, max_pool
from golow.lower.operators.batch_norm import BatchNormInference
from golow.lower.operators.binary import Binary
from golow.lower.operators.convolution import Convolution, ConvolutionBackward
from golow.lower.operators.fill import Fill
from golow.lower.operators.reduce import Reduce
from golow.lower.operators.reshape import Reshape

AXES = 3
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
        operator = operator_of(this, call)
        if operator is not None:
            replaced[position] = (written(this, operator),)
        elif is_transposed(this, call):
            replaced[position] = tuple(through_transposed(this, call, names))
    return rewritten(graph, replaced)


def convolutions(graph: Graph) -> Iterator[tuple[int, Node, Call]]:
    """ATen's calls of convolutions of volumes and of their gradients, with their positions."""
    links = Links(graph)
    for position, this in enumerate(graph.nodes):
        if "conv" in this.op and (this.op in SPELLINGS or this.op in TRANSPOSED):
            call = Call(this, links)
            if call.rank("input") == AXES + 2:
                yield position, this, call


def operator_of(this: Node, call: Call) -> Operator | None:
    """The call of a convolution of volumes as one operator; None if it is transposed, or has no
    such operator."""
    spelled = SPELLINGS.get(this.op)
    return spelled(call, AXES) if spelled is not None else None


def is_transposed(this: Node, call: Call) -> bool:
    """True if it is a transposed convolution, or the gradient of one, that convolutions compute."""
    if this.op == BACKWARD:
        return _is_transposed(call) and _is_whole(call)
    return this.op in TRANSPOSED and _is_transposed(call)


def through_transposed(this: Node, call: Call, names: Names) -> Iterator[Node]:
    """A transposed convolution, or its gradients, by convolutions and their gradients."""
    unfold = _back_through_transposed if this.op == BACKWARD else _transposed
    return unfold(this, call, names)


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
    """True if the convolution of the gradient has as many elements as the input: it has more if
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
    """Batch norm of every volume, where a batch norm with running statistics is a function of its
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


def _is_of_volumes(found: NodeMatch) -> bool:
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
