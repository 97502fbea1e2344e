"""Constant folding of weights in inference: moves work from every iteration to load time.

What they move depends on weights alone, so a plan computes it once.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from golow.lower.analysis.constant_values import constant_values
from golow.lower.ir.graph import Graph, Node, Ref, Value
from golow.lower.ir.operator import written
from golow.lower.ir.patterns import Fusion, Match, NodeMatch, Rule, fuse, node
from golow.lower.ir.rewriting import once, rewritten
from golow.lower.operators.batch_norm import BatchNormInference
from golow.lower.operators.binary import Binary
from golow.lower.operators.convolution import Convolution
from golow.lower.operators.folded_batch_norm import FoldedBias, FoldedWeight
from golow.lower.operators.linear import Linear
from golow.lower.operators.quantized_convolution import QuantizedConvolution
from golow.lower.operators.trimmed_weight import TrimmedWeight


def fold_batch_norm(graph: Graph) -> Graph:
    """Fold a batch norm with running statistics into the convolution or linear layer before it,
    unless these depend on the model's input."""
    return _fold(graph, BATCH_NORM)


def _fold(graph: Graph, rule: Rule) -> Graph:
    """Apply the rule where all new nodes depend on weights alone."""
    same = constant_values(graph)

    def replace(match: Match) -> Sequence[Fusion]:
        fusions = rule.replace(match)
        made = (node for fusion in fusions for node in fusion.before)
        return fusions if all(same.issuperset(node.references()) for node in made) else []

    return fuse(graph, rule._replace(replace=replace))


def _folded(match: Match) -> list[Fusion]:
    layer, norm = match["layer"].arguments, match.arguments("norm", BatchNormInference)
    if not isinstance(layer, Convolution | Linear | QuantizedConvolution):
        return []
    values, output = match["norm"].values, match["norm"].output
    # Weights in whole numbers stay: their scale takes the factor.
    scaled = "scale" if isinstance(layer, QuantizedConvolution) else "weight"
    factors: Ref = getattr(layer, scaled)
    weight = msgspec.structs.replace(values[factors.name], name=f"{output.name}_folded_{scaled}")
    bias = msgspec.structs.replace(values[norm.mean.name], name=f"{output.name}_folded_bias")
    of_weight = FoldedWeight(
        weight=factors, scale=norm.scale, variance=norm.variance, epsilon=norm.epsilon
    )
    of_bias = FoldedBias(
        bias=layer.bias,
        scale=norm.scale,
        shift=norm.shift,
        mean=norm.mean,
        variance=norm.variance,
        epsilon=norm.epsilon,
    )
    operator = msgspec.structs.replace(
        layer, **{scaled: Ref(name=weight.name)}, bias=Ref(name=bias.name)
    )
    before = tuple(
        once(match["norm"].node, made, value)
        for made, value in ((of_weight, weight), (of_bias, bias))
    )
    return [Fusion(operator, "layer", ("norm",), "norm", (output,), before)]


def _norms_the_last_axis(found: NodeMatch) -> bool:
    """True if the channels of a norm after the layer are the layer's outputs."""
    return not isinstance(found.arguments, Linear) or len(found.output.shape) == 2


BATCH_NORM = Rule(
    [
        node(
            "norm",
            BatchNormInference,
            x=node(
                "layer",
                Convolution,
                Linear,
                QuantizedConvolution,
                residual=None,  # the norm would scale it too
                activation=None,
                alone=True,
                where=_norms_the_last_axis,
            ),
        )
    ],
    _folded,
)


# ---------------------------------------------------------------- scales


def fold_scale(graph: Graph) -> Graph:
    """Fold the product with a vector of the layer's outputs into the convolution or linear layer
    before it, as that of a layer scale (Touvron et al. 2021, "Going deeper with image
    transformers"), unless the vector depends on the model's input."""
    return _fold(graph, SCALE)


def _scaled(match: Match) -> list[Fusion]:
    layer, product = match["layer"].arguments, match.arguments("product", Binary)
    if not isinstance(layer, Convolution | Linear) or not isinstance(product.b, Ref):
        return []
    shape = match["product"].output.shape
    outputs = len(shape) - 1 if isinstance(layer, Linear) else 1
    if scaled_axis(match["product"].shape(product.b), shape) != outputs:
        return []
    values, output = match["product"].values, match["product"].output
    vector, before = product.b, list[Node]()

    def scaled(tensor: Ref, what: str) -> Ref:
        name = f"{output.name}_scaled_{what}"
        value = msgspec.structs.replace(values[tensor.name], name=name)
        made = FoldedWeight(weight=tensor, scale=vector, variance=None, epsilon=0.0)
        before.append(once(match["product"].node, made, value))
        return Ref(name=name)

    weight = scaled(layer.weight, "weight")
    bias = None if layer.bias is None else scaled(layer.bias, "bias")
    operator = msgspec.structs.replace(layer, weight=weight, bias=bias)
    return [Fusion(operator, "layer", ("product",), "product", (output,), tuple(before))]


def _scales_outputs(found: NodeMatch) -> bool:
    """True if it multiplies each output of a layer by a separate number."""
    product = found.arguments
    if not isinstance(product, Binary) or not isinstance(product.b, Ref):
        return False
    if product.a == product.b or found.shape(product.a) != found.output.shape:
        return False
    return scaled_axis(found.shape(product.b), found.output.shape) is not None


def scaled_axis(vector: tuple[int, ...], shape: tuple[int, ...]) -> int | None:
    """The axis of a shape along which a vector varies that broadcasts to it; None for what is none,
    or varies along several."""
    wide = [axis - len(vector) for axis, size in enumerate(vector) if size > 1]
    return len(shape) + wide[0] if len(wide) == 1 else None


SCALE = Rule(
    [
        node(
            "product",
            Binary,
            function="multiply",
            activation=None,
            commutes=True,
            where=_scales_outputs,
            a=node("layer", Convolution, Linear, residual=None, activation=None, alone=True),
        )
    ],
    _scaled,
)


# ---------------------------------------------------------------- taps that only read padding


def trim_kernels(graph: Graph) -> Graph:
    """Cut off the taps of a kernel that only ever read zero padding.

    A 3x3 kernel with padding 1 over an image of one pixel needs only its centre tap: in the last
    layers of a deep network on small images, eight ninths of the weights are multiplied by zero.
    """
    values, same = graph.values(), constant_values(graph)
    replaced: dict[int, tuple[Node, ...]] = {}
    for position, this in enumerate(graph.nodes):
        layer, output = Convolution.of(this), this.outputs[0] if this.outputs else None
        if layer is None or output is None or len(layer.stride) != 2:
            continue
        if layer.weight.name in same:
            new = _trimmed(this, layer, output, values)
            if new is not None:
                replaced[position] = new
    return rewritten(graph, replaced)


def _trimmed(
    this: Node, layer: Convolution, output: Value, values: dict[str, Value]
) -> tuple[Node, ...] | None:
    image, weight = values[layer.x.name].shape[2:], values[layer.weight.name]
    kernel = weight.shape[2:]
    ranges, sides = [], []
    for axis in (0, 1):
        before, after = layer.padding[axis], layer.padding[2 + axis]
        stride, dilation = layer.stride[axis], layer.dilation[axis]
        taps = _taps_in_image(
            image[axis], kernel[axis], output.shape[2 + axis], stride, dilation, before
        )
        ranges.append((taps.start, taps.stop))
        sides.append(_padding_left(taps, kernel[axis], dilation, before, after))
    if all(r == (0, size) for r, size in zip(ranges, kernel, strict=True)):
        return None
    if any(side < 0 for both in sides for side in both):
        return None  # the image itself would have to be cut
    shape = (*weight.shape[:2], *(stop - start for start, stop in ranges))
    small = Value(name=f"{output.name}_trimmed", shape=shape, dtype=weight.dtype)
    rows, columns = ranges
    (top, bottom), (left, right) = sides
    trimmed = msgspec.structs.replace(
        layer, weight=Ref(name=small.name), padding=(top, left, bottom, right)
    )
    trim = TrimmedWeight(weight=layer.weight, rows=rows, columns=columns)
    return once(this, trim, small), written(this, trimmed)


def _taps_in_image(
    image: int, kernel: int, output: int, stride: int, dilation: int, before: int
) -> range:
    """The range from the first to the last tap that reads a pixel for some output position."""
    met = [
        tap
        for tap in range(kernel)
        if any(0 <= i * stride - before + tap * dilation < image for i in range(output))
    ]
    return range(met[0], met[-1] + 1) if met else range(kernel)


def _padding_left(
    taps: range, kernel: int, dilation: int, before: int, after: int
) -> tuple[int, int]:
    """The padding left before and after; negative if the image itself would have to be cut."""
    return before - taps.start * dilation, after - (kernel - taps.stop) * dilation
