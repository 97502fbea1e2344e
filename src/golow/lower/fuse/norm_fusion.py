"""Epilogue fusion of batch norm: with the residual and the activation after it; in training in both
directions. One kernel then does the work of three without intermediate values in memory."""

from __future__ import annotations

import msgspec

from golow.lower.fuse.epilogue_fusion import adds_alike
from golow.lower.fuse.product_sums import in_memory
from golow.lower.ir.graph import Activation, Graph, Node, Ref
from golow.lower.ir.operator import written
from golow.lower.ir.patterns import Fusion, Match, NodeMatch, Pattern, Rule, fuse, node
from golow.lower.ir.rewriting import Links, rewritten
from golow.lower.operators.activation import Activate, ActivateBackward
from golow.lower.operators.batch_norm import BatchNorm, BatchNormBackward, BatchNormInference
from golow.lower.operators.binary import Binary
from golow.lower.operators.convolution import ConvolutionBackward
from golow.lower.operators.layer_norm import LayerNormBackward


def fuse_inference_relu(graph: Graph) -> Graph:
    """Fuse a relu into the batch norm of inference that only it reads, where no layer before the
    norm can absorb it, as in a network that normalises first."""
    return fuse(graph, INFERENCE_RELU)


def _with_activation(match: Match) -> list[Fusion]:
    activation = match.arguments("activation", Activate).activation
    operator = msgspec.structs.replace(match["norm"].arguments, activation=activation)
    outputs = match["activation"].node.outputs
    return [Fusion(operator, "norm", ("activation",), "activation", outputs)]


def _is_relu(found: NodeMatch) -> bool:
    return isinstance(found.arguments, Activate) and found.arguments.activation.name == "relu"


INFERENCE_RELU = Rule(
    [
        node(
            "activation",
            Activate,
            x=node("norm", BatchNormInference, activation=None, alone=True),
            where=_is_relu,
        )
    ],
    _with_activation,
)


def fuse_batch_norm_relu(graph: Graph) -> Graph:
    """Fuse a relu into the batch norm that only it reads, in both directions."""
    return fuse(graph, RELU)


def fuse_batch_norm_activation(graph: Graph) -> Graph:
    """Fuse an addition and an activation into the batch norm that only they read, and their
    gradients into the gradient of the norm."""
    return fuse(graph, CLIPPED)


def _activated(match: Match) -> list[Fusion]:
    """Both directions or neither: the fused norm does not write the activation's argument, so a
    gradient that is not fused could not read it."""
    norm, gradient = match.arguments("norm", BatchNorm), match["gradient"]
    outer = match.arguments("gradient", ActivateBackward)
    inner = match.arguments("norm_gradient", BatchNormBackward)
    activation = match["activation"].arguments
    added = activation.b if isinstance(activation, Binary) else None
    if inner.x != norm.x or not isinstance(added, Ref | None):
        return []
    if not isinstance(activation, Activate | Binary) or activation.activation != outer.activation:
        return []
    forward = msgspec.structs.replace(norm, residual=added, activation=outer.activation)
    # The gradient of the residual is a further result, if anything reads it.
    others = not gradient.alone
    backward = msgspec.structs.replace(
        inner,
        gradient=outer.gradient,
        result=outer.value,
        activation=outer.activation,
        shift=norm.shift,
        wanted=(*inner.wanted[:3], others),
    )
    activated = (match["activation"].output, *match["norm"].node.outputs[1:])
    gradients = match["norm_gradient"].node.outputs[:3]
    branch = gradient.output if others else None
    return [
        Fusion(forward, "norm", ("activation",), "activation", activated),
        # At the position of the activation's gradient all its arguments are available.
        Fusion(backward, "norm_gradient", ("gradient",), "gradient", (*gradients, branch)),
    ]


def _rule(names: tuple[str, ...], with_residual: bool) -> Rule:
    """The rule for activations with these names."""

    def chosen(activation: Activation | None) -> bool:
        return activation is not None and activation.name in names

    def activates(found: NodeMatch) -> bool:
        return isinstance(found.arguments, Activate) and chosen(found.arguments.activation)

    def adds_and_activates(found: NodeMatch) -> bool:
        add = found.arguments
        return isinstance(add, Binary) and chosen(add.activation) and adds_alike(found)

    norm = node("norm", BatchNorm, residual=None, activation=None, alone=True)
    forward = [node("activation", Activate, x=norm, where=activates)]
    if with_residual:
        forward.append(
            node(
                "activation",
                Binary,
                function="add",
                a=norm,
                commutes=True,
                where=adds_and_activates,
            )
        )
    return Rule([_with_gradient(each, alone=not with_residual) for each in forward], _activated)


def _with_gradient(forward: Pattern, alone: bool) -> Pattern:
    gradient = node("gradient", ActivateBackward, from_result=True, value=forward, alone=alone)
    return node("norm_gradient", BatchNormBackward, activation=None, second=None, gradient=gradient)


RELU = _rule(("relu",), with_residual=False)

# Activations that consist of one or two comparisons.
CLIPPED = _rule(("relu", "clip"), with_residual=True)


# ---------------------------------------------------------------- two gradients


def fuse_gradient_sum(graph: Graph) -> Graph:
    """Fuse the sum of two gradients, needed where a block's input is read twice, into the gradient
    of the norm if nothing else reads the sum, and if both are in memory in any case."""
    links = Links(graph)

    def added(match: Match) -> list[Fusion]:
        add = match.arguments("sum", Binary)
        terms = (item.name for item in (add.a, add.b) if isinstance(item, Ref))
        return _with_second(match) if all(in_memory(links, name) for name in terms) else []

    return fuse(graph, Rule(GRADIENT_SUM.patterns, added))


def _with_second(match: Match) -> list[Fusion]:
    add = match.arguments("sum", Binary)
    gradient = match.arguments("norm_gradient", BatchNormBackward)
    if gradient.activation is None or not isinstance(add.b, Ref):
        return []
    operator = msgspec.structs.replace(gradient, gradient=add.a, second=add.b)
    outputs = match["norm_gradient"].node.outputs
    return [Fusion(operator, "norm_gradient", ("sum",), "norm_gradient", outputs)]


GRADIENT_SUM = Rule(
    [
        node(
            "norm_gradient",
            BatchNormBackward,
            second=None,
            gradient=node(
                "sum", Binary, function="add", activation=None, alone=True, where=adds_alike
            ),
        )
    ],
    _with_second,
)


def add_within_norm_gradients(graph: Graph) -> Graph:
    """Let the gradient of a layer norm add another gradient of what the norm read, as that of the
    branch around it, if that is there before and nothing else reads the norm's own."""
    links = Links(graph)
    replaced: dict[int, tuple[Node, ...]] = {}
    for position, this in enumerate(graph.nodes):
        norm, made = LayerNormBackward.of(this), this.outputs[:1]
        reader = links.only_reader(made[0].name) if norm is not None and made[0] else None
        add = Binary.of(graph.nodes[reader]) if reader is not None else None
        if norm is None or reader is None or add is None or not made[0]:
            continue
        other = add.b if add.a.name == made[0].name else add.a
        if not _adds_two(links, add) or not isinstance(other, Ref):
            continue
        if links.maker.get(other.name, -1) < position and in_memory(links, other.name, replaced):
            total = msgspec.structs.replace(norm, added=other)
            outputs = (graph.nodes[reader].outputs[0], *this.outputs[1:])
            replaced |= {position: (written(this, total, outputs=outputs),), reader: ()}
    return rewritten(graph, replaced) if replaced else graph


def _adds_two(links: Links, add: Binary) -> bool:
    """True if it adds two different values of the same shape, and nothing follows."""
    if add.function != "add" or add.activation is not None or not isinstance(add.b, Ref):
        return False
    one, other = links.values[add.a.name], links.values[add.b.name]
    return one.name != other.name and (one.shape, one.dtype) == (other.shape, other.dtype)


# ---------------------------------------------------------------- gradients of some pixels


def compact_strided_gradients(graph: Graph) -> Graph:
    """Let the gradient of what a strided convolution of single pixels read, as in the shortcut of a
    residual network, be of those pixels alone, where only the gradient of a norm adds it to
    another: neither the zeros between them are written, nor read."""
    return fuse(graph, STRIDED)


def _of_some_pixels(match: Match) -> list[Fusion]:
    norm = match.arguments("norm_gradient", BatchNormBackward)
    layer = match.arguments("layer", ConvolutionBackward)
    whole, *others = match["layer"].node.outputs
    if whole is None or norm.second is None or norm.step != (1, 1):
        return []
    first = norm.gradient if norm.second.name == whole.name else norm.second
    shape = (*whole.shape[:2], *match["layer"].shape(layer.gradient)[2:])
    compact = msgspec.structs.replace(whole, shape=shape)
    added = msgspec.structs.replace(
        norm, gradient=first, second=Ref(name=whole.name), step=layer.stride
    )
    outputs = match["norm_gradient"].node.outputs
    return [
        Fusion(
            msgspec.structs.replace(layer, compact=True), "layer", (), "layer", (compact, *others)
        ),
        Fusion(added, "norm_gradient", (), "norm_gradient", outputs),
    ]


def _skips_pixels(found: NodeMatch) -> bool:
    layer = found.arguments
    return (
        isinstance(layer, ConvolutionBackward)
        and found.shape(layer.weight)[2:] == (1, 1)
        and layer.stride != (1, 1)
        and layer.groups == 1
        and not any(layer.padding)
    )


LAYER = node("layer", ConvolutionBackward, alone=True, where=_skips_pixels)
STRIDED = Rule(
    [
        node("norm_gradient", BatchNormBackward, gradient=LAYER),
        node("norm_gradient", BatchNormBackward, second=LAYER),
    ],
    _of_some_pixels,
)
