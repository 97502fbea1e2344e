"""Examples of silu."""

from __future__ import annotations

from torch import nn

from support.graphs.drawn_arguments import of_argument, of_one

CALLS = {"aten.silu.default": of_one(), "aten.silu_backward.default": of_argument()}

LAYERS = {nn.SiLU(): ()}
