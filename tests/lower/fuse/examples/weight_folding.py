"""Examples of what is folded into the weights of a layer."""

from __future__ import annotations

from msgspec.structs import replace

from golow.lower.ir.operator import Operator
from golow.lower.operators.binary import Binary
from golow.lower.operators.folded_batch_norm import FoldedBias, FoldedWeight
from support.graphs.written_graphs import (
    CHANNELS,
    IMAGES,
    NORM,
    RELU,
    SAME,
    Fires,
    Stays,
    Written,
    numbers,
    one,
    ref,
)


def _normed(layer: Operator) -> Written:
    return Written(IMAGES | CHANNELS, [one("c", layer), one("n", NORM)], "n")


_OF_NORM = {"scale": ref("scale"), "variance": ref("variance"), "epsilon": 1e-5}


def _scaled(layer: Operator, shape: tuple[int, ...], *returned: str) -> Written:
    product = Binary(function="multiply", a=ref("c"), b=ref("s"))
    given = IMAGES | {"s": numbers(*shape)}
    return Written(given, [one("c", layer), one("y", product)], "y", *returned)


EXAMPLES = {
    "BATCH_NORM": (
        Fires(
            _normed(SAME),
            [
                FoldedWeight(weight=ref("w"), **_OF_NORM),
                FoldedBias(bias=None, shift=ref("shift"), mean=ref("mean"), **_OF_NORM),
                replace(SAME, weight=ref("n_folded_weight"), bias=ref("n_folded_bias")),
            ],
        ),
        Stays(_normed(replace(SAME, activation=RELU))),
    ),
    # A number for each channel; not one for each column, nor after an activation.
    "SCALE": (
        Fires(
            _scaled(SAME, (3, 1, 1)),
            [
                FoldedWeight(weight=ref("w"), scale=ref("s"), variance=None, epsilon=0.0),
                replace(SAME, weight=ref("y_scaled_weight")),
            ],
        ),
        Stays(_scaled(SAME, (3, 1, 1), "c")),
        Stays(_scaled(SAME, (4,))),
        Stays(_scaled(SAME, (4,), "c")),
        Stays(_scaled(replace(SAME, activation=RELU), (3, 1, 1))),
        Stays(_scaled(replace(SAME, activation=RELU), (3, 1, 1), "c")),
    ),
}
