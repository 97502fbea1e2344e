"""Examples of gelu_tanh; gelu spells it, and has its calls."""

from __future__ import annotations

from torch import nn

LAYERS = {nn.GELU("tanh"): ()}
