"""Examples of batch norms that see a volume as an image."""

from __future__ import annotations

from msgspec.structs import replace

from golow.lower.operators.convolution import Convolution
from golow.lower.operators.reshape import Reshape
from support.graphs.written_graphs import (
    CHANNELS,
    NORM,
    Fires,
    Stays,
    Written,
    activate,
    numbers,
    one,
    ref,
)

_VOLUME = (2, 3, 2, 4, 4)
_TURNED = (2, 3, 4, 2, 4)
_GIVEN = {"v": numbers(*_VOLUME), "k": numbers(3, 3, 1, 1, 1)} | CHANNELS
_LAYER = Convolution(
    x=ref("v"), weight=ref("k"), stride=(1,) * 3, padding=(0,) * 6, dilation=(1,) * 3
)


def _normed(shape: tuple[int, ...], *returned: str) -> Written:
    """The norm of a convolution's result as an image, and that by the shape."""
    nodes = [
        one("c", _LAYER),
        one("i", Reshape(x=ref("c"), shape=(2, 3, 8, 4))),
        one("n", replace(NORM, x=ref("i"))),
        one("b", Reshape(x=ref("n"), shape=shape)),
    ]
    return Written(_GIVEN, nodes, "b", *returned)


def _of_a_function(shape: tuple[int, ...], *returned: str) -> Written:
    """The same of a function, which no norm is folded into."""
    nodes = [
        one("c", activate("v")),
        one("i", Reshape(x=ref("c"), shape=(2, 3, 8, 4))),
        one("n", replace(NORM, x=ref("i"))),
        one("b", Reshape(x=ref("n"), shape=shape)),
    ]
    return Written(_GIVEN, nodes, "b", *returned)


EXAMPLES = {
    "VOLUME_NORM": (
        Fires(_normed(_VOLUME), [_LAYER, NORM]),
        Stays(_normed(_TURNED)),
        Stays(_normed(_VOLUME, "i")),
        Stays(_normed(_VOLUME, "c")),
        Stays(_of_a_function(_VOLUME)),
    ),
    "ANY_VOLUME_NORM": (
        Fires(_normed(_VOLUME), [_LAYER, NORM]),
        Fires(_normed(_VOLUME, "c"), [_LAYER, NORM]),
        Fires(_of_a_function(_VOLUME), [activate("v"), NORM]),
        Stays(_of_a_function(_TURNED)),
        Stays(_of_a_function(_VOLUME, "i")),
        Stays(_of_a_function(_VOLUME, "n")),
    ),
}
