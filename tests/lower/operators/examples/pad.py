"""Examples of padding with a number."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st
from torch import nn

from golow.lower.operators.pad import Pad
from support.graphs.drawn_arguments import IMAGE, Drawn, X, image

RECORDS = (Pad(x=X, before=(0, 1), after=(1, 0), value=float("-inf")),)


@st.composite
def _padded(draw: st.DrawFn, **further: Any) -> Drawn:
    x = draw(image())
    sides = draw(st.lists(st.tuples(st.integers(-1, 2), st.integers(-1, 2)), max_size=2))
    value = draw(st.sampled_from([0, 0.5, float("-inf")]))
    return Drawn({"self": x, "pad": [n for both in sides for n in both], "value": value} | further)


CALLS = {
    "aten.constant_pad_nd.default": _padded(),
    "aten.pad.default": _padded(mode="constant"),
}

LEFT = {"reflection": ("aten.pad.default", IMAGE, [1, 1, 1, 1], "reflect")}

LAYERS = (nn.ZeroPad2d((1, 0, 2, 1)),)
