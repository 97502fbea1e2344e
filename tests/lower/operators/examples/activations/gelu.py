"""Examples of gelu."""

from __future__ import annotations

from hypothesis import strategies as st
from torch import nn

from support.graphs.drawn_arguments import of_argument, of_one

_approximation = st.sampled_from(["none", "tanh"])

CALLS = {
    "aten.gelu.default": of_one(approximate=_approximation),
    "aten.gelu_backward.default": of_argument(approximate=_approximation),
}

LAYERS = {nn.GELU(): ()}
