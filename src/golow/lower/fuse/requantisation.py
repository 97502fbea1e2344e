"""Whole numbers stay whole numbers from one quantised layer to the next: the layer rounds its own
result, which is then written and read in a quarter of the bytes."""

from __future__ import annotations

import msgspec

from golow.lower.ir.graph import Graph
from golow.lower.ir.patterns import Fusion, Match, Rule, fuse, node
from golow.lower.operators.quantize import Quantize
from golow.lower.operators.quantized_convolution import QuantizedConvolution
from golow.lower.operators.quantized_linear import QuantizedLinear


def fuse_requantisation(graph: Graph) -> Graph:
    """Fuse the rounding of a quantised layer's result into the layer, if nothing else reads that
    result. A shortcut reads it in float32: its layer writes float32."""
    return fuse(graph, REQUANTISATION)


def _with_rounding(match: Match) -> list[Fusion]:
    rounding = match.arguments("rounding", Quantize)
    operator = msgspec.structs.replace(
        match["layer"].arguments, result_scale=rounding.scale, result_type=rounding.dtype
    )
    outputs = match["rounding"].node.outputs
    return [Fusion(operator, "layer", ("rounding",), "rounding", outputs)]


REQUANTISATION = Rule(
    [
        node(
            "rounding",
            Quantize,
            x=node("layer", QuantizedConvolution, QuantizedLinear, result_scale=None, alone=True),
        )
    ],
    _with_rounding,
)
