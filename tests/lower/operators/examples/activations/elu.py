"""Examples of elu."""

from __future__ import annotations

from hypothesis import strategies as st
from torch import nn

from support.graphs.drawn_arguments import IMAGE, gradient, numbers, of_one

NUMBERS = ((1.0,), (0.3,))

_numbers = {"alpha": numbers, "scale": st.just(1), "input_scale": st.just(1)}

CALLS = {
    "aten.elu.default": of_one(**_numbers),
    "aten.elu_backward.default": gradient("self_or_result", is_result=st.just(False), **_numbers),
}

LEFT = {
    "selu": ("aten.elu.default", IMAGE, 1.67, 1.05),
    "celu": ("aten.elu.default", IMAGE, 0.5, 1.0, 2.0),
    "gradient from the result": ("aten.elu_backward.default", IMAGE, 1.0, 1.0, 1.0, True, IMAGE),
}

LAYERS = {nn.ELU(): (1.0,), nn.ELU(0.5): (0.5,)}
