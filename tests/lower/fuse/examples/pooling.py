"""Examples of means over an image that are pooling."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from golow.lower.operators.adaptive_average_pool import AdaptiveAveragePool
from golow.lower.operators.reduce import Reduce
from golow.lower.operators.reshape import Reshape
from support.graphs.written_graphs import IMAGES, Fires, Stays, Written, numbers, one, ref

_MEAN = Reduce(function="mean", x=ref("x"), axes=(2, 3), keep=True)


def _mean(given: dict[str, Any] = IMAGES, **changes: Any) -> Written:
    return Written(given, [one("m", replace(_MEAN, **changes))], "m")


EXAMPLES = {
    "GLOBAL_POOLING": (
        Fires(_mean(), [AdaptiveAveragePool(x=ref("x"), size=(1, 1))]),
        Stays(_mean(keep=False)),
        Stays(_mean(function="sum")),
        Stays(_mean(axes=(1, 2))),
        Stays(_mean({"x": numbers(2, 3, 4, 4, 2)})),
    ),
    # Without the axes of the image.
    "FLAT_POOLING": (
        Fires(
            _mean(keep=False),
            [
                AdaptiveAveragePool(x=ref("x"), size=(1, 1)),
                Reshape(x=ref("m_pooled"), shape=(2, 3)),
            ],
        ),
        Stays(_mean()),
        Stays(_mean(keep=False, function="sum")),
        Stays(_mean(keep=False, axes=(1, 2))),
    ),
}
