"""Prologue and epilogue fusion: padding, residual additions and activations become part of the
convolution or linear layer next to them, so that a value is written once instead of two to four
times.

Both direct levels start from the graph after these passes.
"""

from __future__ import annotations

import msgspec

from golow.lower.ir.graph import Graph, Ref
from golow.lower.ir.patterns import Fusion, Match, NodeMatch, Rule, fuse, node
from golow.lower.ir.rewriting import changes_in_place, result, rewritten
from golow.lower.operators.activation import Activate
from golow.lower.operators.binary import Binary
from golow.lower.operators.convolution import Convolution
from golow.lower.operators.copy import Copy
from golow.lower.operators.linear import Linear
from golow.lower.operators.narrow_linear import NarrowLinear
from golow.lower.operators.pad import Pad
from golow.lower.operators.pointwise import Pointwise
from golow.lower.operators.quantized_convolution import QuantizedConvolution
from golow.lower.operators.quantized_linear import QuantizedLinear
from golow.lower.operators.slice import Slice


def drop_copies(graph: Graph) -> Graph:
    """Remove copies: in a graph without in-place operations a copy equals its source."""
    if any(changes_in_place(node) for node in graph.nodes):
        return graph
    names: dict[str, str] = {}
    for this in graph.nodes:
        copy = Copy.of(this)
        if copy is not None:
            names[result(this)] = names.get(copy.x.name, copy.x.name)
    dropped = (i for i, this in enumerate(graph.nodes) if result(this) in names)
    return rewritten(graph, dict.fromkeys(dropped, ()), names)


def drop_conversions(graph: Graph) -> Graph:
    """Remove conversions to the type that a value has, as networks write them that compute a part
    in float32 whatever they are given."""
    types = {name: value.dtype for name, value in graph.values().items()}
    names: dict[str, str] = {}
    for this in graph.nodes:
        convert = Pointwise.of(this)
        source = convert.operands[0] if convert and convert.function == "convert" else None
        if convert and isinstance(source, Ref) and types[source.name] == convert.dtype:
            names[result(this)] = names.get(source.name, source.name)
    dropped = (i for i, this in enumerate(graph.nodes) if result(this) in names)
    return rewritten(graph, dict.fromkeys(dropped, ()), names)


def drop_neutral_numbers(graph: Graph) -> Graph:
    """Remove additions of zero and products with one, as where a network sums in a loop."""
    names: dict[str, str] = {}
    for this in graph.nodes:
        function = Binary.of(this)
        if function is not None and function.activation is None and _is_neutral(function):
            names[result(this)] = names.get(function.a.name, function.a.name)
    dropped = (i for i, this in enumerate(graph.nodes) if result(this) in names)
    return rewritten(graph, dict.fromkeys(dropped, ()), names)


def _is_neutral(function: Binary) -> bool:
    neutral = {"add": 0, "subtract": 0, "multiply": 1, "divide": 1}[function.function]
    return not isinstance(function.b, Ref) and function.b == neutral


# ---------------------------------------------------------------- padding


def fuse_padding(graph: Graph) -> Graph:
    """Fuse zero padding into the convolution that reads it; its sides may differ."""
    return fuse(graph, PADDING)


def _with_padding(match: Match) -> list[Fusion]:
    layer, pad = match.arguments("layer", Convolution), match.arguments("pad", Pad)
    more = (*pad.before[2:], *pad.after[2:])
    padding = tuple(map(sum, zip(layer.padding, more, strict=True)))
    operator = msgspec.structs.replace(layer, x=pad.x, padding=padding)
    takes = ("pad",) if match["pad"].alone else ()  # else another node needs it
    return [Fusion(operator, "layer", takes, "layer", match["layer"].node.outputs)]


def _pads_pixels_with_zeros(found: NodeMatch) -> bool:
    pad = found.arguments
    if not isinstance(pad, Pad) or pad.value != 0:
        return False
    outer, inner = (*pad.before[:2], *pad.after[:2]), (*pad.before[2:], *pad.after[2:])
    return not any(outer) and min(inner) >= 0


PADDING = Rule(
    [node("layer", Convolution, x=node("pad", Pad, where=_pads_pixels_with_zeros))], _with_padding
)


def fuse_cut(graph: Graph) -> Graph:
    """Take a range of a convolution's result by padding its operand less, as causal convolutions
    are written that pad both ends and cut one off."""
    return fuse(graph, CUT)


def _with_less_padding(match: Match) -> list[Fusion]:
    layer, cut = match.arguments("layer", Convolution), match.arguments("cut", Slice)
    size = match["cut"].shape(cut.x)[cut.axis]
    sides = list(layer.padding)
    before, after = cut.axis - 2, cut.axis - 2 + len(layer.stride)
    sides[before] -= cut.start
    sides[after] -= size - cut.stop
    if min(sides) < 0 or layer.stride[before] != 1:
        return []
    operator = msgspec.structs.replace(layer, padding=tuple(sides))
    return [Fusion(operator, "layer", ("cut",), "cut", match["cut"].node.outputs)]


def _cuts_pixels(found: NodeMatch) -> bool:
    cut = found.arguments
    return isinstance(cut, Slice) and cut.step == 1 and cut.axis >= 2 and cut.stop > cut.start


CUT = Rule(
    [
        node(
            "cut",
            Slice,
            where=_cuts_pixels,
            x=node("layer", Convolution, residual=None, activation=None, alone=True),
        )
    ],
    _with_less_padding,
)


# ---------------------------------------------------------------- residual


def fuse_residual(graph: Graph) -> Graph:
    """Fuse the addition of a value of the same shape into the convolution or linear layer that
    makes the other operand, if nothing else reads that operand."""
    return fuse(graph, RESIDUAL)


def _with_residual(match: Match) -> list[Fusion]:
    operator = msgspec.structs.replace(
        match["layer"].arguments, residual=match.arguments("add", Binary).b
    )
    return [Fusion(operator, "layer", ("add",), "add", match["add"].node.outputs)]


def adds_alike(found: NodeMatch) -> bool:
    """True if it adds two different values of the same shape."""
    add = found.arguments
    return (
        isinstance(add, Binary)
        and isinstance(add.b, Ref)
        and add.a != add.b
        and found.shape(add.a) == found.shape(add.b)
    )


LAYERS = (Convolution, Linear, NarrowLinear, QuantizedConvolution, QuantizedLinear)
PLAIN_LAYER = node("layer", *LAYERS, residual=None, activation=None, alone=True)

RESIDUAL = Rule(
    [
        node(
            "add",
            Binary,
            function="add",
            activation=None,
            a=PLAIN_LAYER,
            commutes=True,
            where=adds_alike,
        )
    ],
    _with_residual,
)


# ---------------------------------------------------------------- activation


def fuse_activation(graph: Graph) -> Graph:
    """Fuse an activation into the convolution, linear layer or addition that only it reads."""
    return fuse(graph, ACTIVATION)


def _with_activation(match: Match) -> list[Fusion]:
    activation = match.arguments("activation", Activate).activation
    operator = msgspec.structs.replace(match["maker"].arguments, activation=activation)
    outputs = match["activation"].node.outputs
    return [Fusion(operator, "maker", ("activation",), "activation", outputs)]


def _sums_of_one_shape(found: NodeMatch) -> bool:
    add = found.arguments
    return (
        isinstance(add, Binary)
        and isinstance(add.b, Ref)
        and found.shape(add.a) == found.shape(add.b)
    )


ACTIVATION = Rule(
    [
        node("activation", Activate, x=maker)
        for maker in (
            node("maker", *LAYERS, activation=None, alone=True),
            node(
                "maker",
                Binary,
                function="add",
                activation=None,
                alone=True,
                where=_sums_of_one_shape,
            ),
        )
    ],
    _with_activation,
)
