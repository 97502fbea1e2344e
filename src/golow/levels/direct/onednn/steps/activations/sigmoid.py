"""sigmoid, which oneDNN calls logistic."""

from __future__ import annotations

from golow.levels.direct.onednn.steps.eltwise import Eltwise

ACTIVATIONS = {"sigmoid": Eltwise("logistic", from_result=True)}
