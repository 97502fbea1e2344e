"""relu: the larger of x and zero."""

from __future__ import annotations

from golow.levels.direct.onednn.steps.eltwise import Eltwise

ACTIVATIONS = {"relu": Eltwise("relu", from_result=True)}
