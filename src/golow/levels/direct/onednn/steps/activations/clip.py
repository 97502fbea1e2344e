"""clip: x limited to two bounds; the variant whose gradient is zero at both, as in PyTorch."""

from __future__ import annotations

from golow.levels.direct.onednn.steps.eltwise import Eltwise


def numbers(low: float, high: float) -> tuple[float, float]:
    return low, high


ACTIVATIONS = {"clip": Eltwise("clip_v2", numbers, from_result=True)}
