"""Examples of gradients that are those of another operator."""

from __future__ import annotations

from golow.lower.operators.adaptive_average_pool import AdaptiveAveragePoolBackward
from golow.lower.operators.binary import Binary
from golow.lower.operators.expand import Expand
from support.graphs.written_graphs import Fires, Stays, Written, numbers, one, ref

_POOLED = AdaptiveAveragePoolBackward(gradient=ref("g"), shape=(2, 3, 4, 5))


def _shared(number: float, *returned: str) -> Written:
    spread = Expand(x=ref("g"), shape=(2, 3, 4, 5))
    share = Binary(function="divide", a=ref("e"), b=number)
    given = {"g": numbers(2, 3, 1, 1)}
    return Written(given, [one("e", spread), one("d", share)], "d", *returned)


EXAMPLES = {
    "SPREAD_GRADIENT": (
        Fires(_shared(20), [_POOLED]),
        Fires(_shared(20.0), [_POOLED]),
        Stays(_shared(19)),
        Stays(_shared(20, "e")),
    ),
}
