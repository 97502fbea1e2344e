"""gelu with the error function."""

from __future__ import annotations

from golow.levels.direct.onednn.steps.eltwise import Eltwise

ACTIVATIONS = {"gelu": Eltwise("gelu_erf")}
