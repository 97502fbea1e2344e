"""gelu, approximated with tanh."""

from __future__ import annotations

from golow.levels.direct.onednn.steps.eltwise import Eltwise

ACTIVATIONS = {"gelu_tanh": Eltwise("gelu_tanh")}
