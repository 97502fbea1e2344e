"""Examples of relu."""

from __future__ import annotations

from hypothesis import strategies as st
from torch import nn

from support.graphs.drawn_arguments import IMAGE, of_argument, of_one

CALLS = {
    "aten.relu.default": of_one(),
    "aten.threshold_backward.default": of_argument(threshold=st.sampled_from([0, 0.0])),
}

LEFT = {"threshold": ("aten.threshold_backward.default", IMAGE, IMAGE, 1.0)}

LAYERS = {nn.ReLU(): (), nn.ReLU(inplace=True): ()}
