"""Examples of tanh."""

from __future__ import annotations

from torch import nn

from support.graphs.drawn_arguments import of_one, of_result

CALLS = {"aten.tanh.default": of_one(), "aten.tanh_backward.default": of_result()}

LAYERS = {nn.Tanh(): ()}
