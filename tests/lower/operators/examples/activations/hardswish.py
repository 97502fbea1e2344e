"""Examples of hardswish."""

from __future__ import annotations

from torch import nn

from support.graphs.drawn_arguments import of_argument, of_one

CALLS = {"aten.hardswish.default": of_one(), "aten.hardswish_backward.default": of_argument()}

LAYERS = {nn.Hardswish(): ()}
