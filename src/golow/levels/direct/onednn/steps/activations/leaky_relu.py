"""leaky_relu: oneDNN's relu, which takes a slope."""

from __future__ import annotations

from golow.levels.direct.onednn.steps.eltwise import Eltwise


def numbers(slope: float) -> tuple[float, float]:
    return slope, 0.0


ACTIVATIONS = {"leaky_relu": Eltwise("relu", numbers, from_result=True)}
