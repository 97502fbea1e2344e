"""Whole numbers stay whole numbers from one quantised layer to the next: the layer rounds its own
result, which is then written and read in a quarter of the bytes."""

from __future__ import annotations

import msgspec

from golow.lower.ir.graph import Graph, Ref
from golow.lower.ir.operator import written
from golow.lower.ir.patterns import Fusion, Match, Rule, fuse, node
from golow.lower.operators.max_pool import MaxPool
from golow.lower.operators.quantize import Quantize
from golow.lower.operators.quantized_convolution import QuantizedConvolution
from golow.lower.operators.quantized_linear import QuantizedLinear


def round_before_pooling(graph: Graph) -> Graph:
    """Round what a max pooling reads instead of its result: the largest of rounded numbers is the
    rounded largest one."""
    return fuse(graph, POOLED)


def _rounded_first(match: Match) -> list[Fusion]:
    rounding, pool = match.arguments("rounding", Quantize), match.arguments("pool", MaxPool)
    whole = match["rounding"].output
    value = msgspec.structs.replace(
        whole, name=f"{whole.name}_all", shape=match["pool"].shape(pool.x)
    )
    before = written(
        match["rounding"].node,
        msgspec.structs.replace(rounding, x=pool.x),
        name=value.name,
        outputs=(value,),
    )
    operator = msgspec.structs.replace(pool, x=Ref(name=value.name))
    return [Fusion(operator, "pool", ("rounding",), "rounding", (whole,), (before,))]


POOLED = Rule(
    [node("rounding", Quantize, x=node("pool", MaxPool, indices=False, alone=True))],
    _rounded_first,
)


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
