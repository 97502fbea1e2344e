"""tanh: the hyperbolic tangent."""

from __future__ import annotations

from golow.levels.direct.onednn.steps.eltwise import Eltwise

ACTIVATIONS = {"tanh": Eltwise("tanh", from_result=True)}
