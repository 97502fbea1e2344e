"""Examples of hardsigmoid."""

from __future__ import annotations

from torch import nn

from support.graphs.drawn_arguments import of_argument, of_one

CALLS = {"aten.hardsigmoid.default": of_one(), "aten.hardsigmoid_backward.default": of_argument()}

LAYERS = {nn.Hardsigmoid(): ()}
