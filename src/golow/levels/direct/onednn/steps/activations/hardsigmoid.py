"""hardsigmoid: alpha x + beta, limited to zero and one."""

from __future__ import annotations

from golow.levels.direct.onednn.steps.eltwise import Eltwise


def numbers() -> tuple[float, float]:
    return 1 / 6, 0.5


ACTIVATIONS = {"hardsigmoid": Eltwise("hardsigmoid", numbers)}
