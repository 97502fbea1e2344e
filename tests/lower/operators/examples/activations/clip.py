"""Examples of clip."""

from __future__ import annotations

import math

from hypothesis import strategies as st
from torch import nn

from support.graphs.drawn_arguments import IMAGE, Drawn, numbers, of_argument, of_one, some

NUMBERS = ((0.0, 6.0), (-1.0, 1.0), (-0.5, 0.25))


@st.composite
def bounds(draw: st.DrawFn, call: st.SearchStrategy[Drawn], defaults: bool) -> Drawn:
    low, high = (-1, 1) if defaults and draw(some) else (draw(numbers) - 4, draw(numbers) + 2)
    return Drawn(draw(call).named | {"min_val": low, "max_val": high})


CALLS = {
    "aten.relu6.default": of_one(),
    "aten.hardtanh.default": bounds(of_one(), defaults=True),
    "aten.hardtanh_backward.default": bounds(of_argument(), defaults=False),
}

LEFT = {
    "to infinity": ("aten.hardtanh.default", IMAGE, -math.inf, 1.0),
    "its gradient": ("aten.hardtanh_backward.default", IMAGE, IMAGE, 0.0, math.inf),
}

LAYERS = {nn.ReLU6(): (0.0, 6.0), nn.Hardtanh(-0.5, 0.25): (-0.5, 0.25), nn.Hardtanh(): (-1.0, 1.0)}
