"""Examples of leaky_relu."""

from __future__ import annotations

from hypothesis import strategies as st
from torch import nn

from support.graphs.drawn_arguments import IMAGE, of_argument, of_one

NUMBERS = ((0.01,), (0.3,), (0.0,), (1.5,))

_slopes = st.sampled_from([0.01, 0.3, 0, 1.5])

CALLS = {
    "aten.leaky_relu.default": of_one(negative_slope=_slopes),
    "aten.leaky_relu_backward.default": of_argument(
        negative_slope=_slopes, self_is_result=st.just(False)
    ),
}

LEFT = {
    "slope below zero": ("aten.leaky_relu.default", IMAGE, -0.1),
    "its gradient": ("aten.leaky_relu_backward.default", IMAGE, IMAGE, -0.1, False),
    "gradient from the result": ("aten.leaky_relu_backward.default", IMAGE, IMAGE, 0.1, True),
}

LAYERS = {nn.LeakyReLU(0.1): (0.1,)}
