"""Examples of what convolutions and other operators take in."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from msgspec.structs import replace

from golow.lower.operators.pad import Pad
from golow.lower.operators.slice import Slice
from support.graphs.written_graphs import (
    IMAGES,
    RELU,
    SAME,
    Fires,
    Stays,
    Written,
    activate,
    add,
    one,
    ref,
)

_SIDES: dict[str, Any] = {"before": (0, 0, 1, 2), "after": (0, 0, 0, 1)}


def _padded(value: float) -> Written:
    pads = Pad(x=ref("x"), value=value, **_SIDES)
    return Written(IMAGES, [one("p", pads), one("c", replace(SAME, x=ref("p")))], "c")


def _cut() -> Iterator[Fires | Stays]:
    """An output of 6x6 pixels, of which one range needs less padding; others need a cut."""
    wide = replace(SAME, padding=(2, 2, 2, 2))
    for axis in (2, 3):
        # left: the padding before and after the axis, where it fits
        for start, stop, left in ((0, 4, (2, 0)), (2, 6, (0, 2)), (1, 5, (1, 1)), (0, 3, None)):
            cut = one("s", Slice(x=ref("c"), axis=axis, start=start, stop=stop, step=1))
            nodes = [one("c", wide), cut]
            yield Stays(Written(IMAGES, nodes, "s", "c"))
            for other in ({"activation": RELU}, {"stride": (2, 2)}):
                changed = [one("c", replace(wide, **other)), cut]
                yield Stays(Written(IMAGES, changed, "s"))
                yield Stays(Written(IMAGES, changed, "s", "c"))
            written = Written(IMAGES, nodes, "s")
            if left is None:
                yield Stays(written)
                continue
            padding = (left[0], 2, left[1], 2) if axis == 2 else (2, left[0], 2, left[1])
            yield Fires(written, [replace(wide, padding=padding)])
    of_channels = Slice(x=ref("c"), axis=1, start=0, stop=2, step=1)
    yield Stays(Written(IMAGES, [one("c", wide), one("s", of_channels)], "s"))


_ADDED = [one("c", SAME), one("s", add("z", "c"))]


_OF_LAYER, _OF_SUM = ([one("c", maker), one("a", activate("c"))] for maker in (SAME, add("x", "z")))


EXAMPLES = {
    "PADDING": (
        Fires(_padded(0.0), [replace(SAME, padding=(2, 3, 1, 2))]),
        Stays(_padded(1.0)),
    ),
    "CUT": tuple(_cut()),
    "RESIDUAL": (
        Fires(Written(IMAGES, _ADDED, "s"), [replace(SAME, residual=ref("z"))]),
        Stays(Written(IMAGES, _ADDED, "s", "c")),
    ),
    "ACTIVATION": (
        Fires(Written(IMAGES, _OF_LAYER, "a"), [replace(SAME, activation=RELU)]),
        Fires(Written(IMAGES, _OF_SUM, "a"), [replace(add("x", "z"), activation=RELU)]),
        Stays(Written(IMAGES, _OF_LAYER, "a", "c")),
        Stays(Written(IMAGES, _OF_SUM, "a", "c")),
    ),
}
