"""elu: x where it is positive, else alpha times exp(x) - 1."""

from __future__ import annotations

from golow.levels.direct.onednn.steps.eltwise import Eltwise


def numbers(alpha: float) -> tuple[float, float]:
    return alpha, 0.0


ACTIVATIONS = {"elu": Eltwise("elu", numbers)}
