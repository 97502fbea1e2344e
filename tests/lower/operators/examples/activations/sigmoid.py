"""Examples of sigmoid."""

from __future__ import annotations

from torch import nn

from support.graphs.drawn_arguments import of_one, of_result

CALLS = {"aten.sigmoid.default": of_one(), "aten.sigmoid_backward.default": of_result()}

LAYERS = {nn.Sigmoid(): ()}
