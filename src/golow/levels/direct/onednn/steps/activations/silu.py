"""silu, which oneDNN calls swish: x times sigmoid(alpha x)."""

from __future__ import annotations

from golow.levels.direct.onednn.steps.eltwise import Eltwise


def numbers() -> tuple[float, float]:
    return 1.0, 0.0


ACTIVATIONS = {"silu": Eltwise("swish", numbers)}
