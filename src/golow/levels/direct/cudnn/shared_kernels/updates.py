"""Launches `updates.cu`: the optimizers, and clipping by norm."""

from __future__ import annotations

import numpy as np

from golow.levels.direct.cudnn.problems.element_types import C_TYPES
from golow.levels.direct.cudnn.shared_kernels import FOLDER, Kernel
from golow.levels.direct.cudnn.shared_kernels.geometry import (
    THREADS,
    flat,
    require_count,
    require_floating,
    vector,
)
from golow.levels.direct.cudnn.shared_kernels.loss_scale import CODE
from golow.lower.operators.adam_update import AdamUpdate
from golow.lower.operators.clip_factor import SMALLEST
from golow.lower.operators.rmsprop_update import RmspropUpdate
from golow.lower.operators.sgd_update import SgdUpdate

FILE = FOLDER / "updates.cu"
BLOCKS = 1024  # of `squares`: as many sums, whatever the number of gradients
Update = SgdUpdate | AdamUpdate | RmspropUpdate


def update(
    count: int, settings: Update, gradient: str = "float32", copy: str = "float32"
) -> Kernel:
    """Pointers: gradient [count] of the type ``gradient``, parameter, momentum, square [count]
    (float32; momentum or square 0 if the optimizer has none), rate (float32 scalar), corrections
    (of `adam_step`) or 0, clip (float32 scalar) or 0, scaler (`SCALER`) or 0, copy [count] of the
    type ``copy`` or 0.

    All but the gradient, and what is one number, are updated in place; the copy gets the new
    parameters. With a scaler, gradients are divided by its scale, and nothing is written if it has
    found one that is not finite. Raises ValueError for types that are not floating point.
    """
    require_count(count)
    require_floating(gradient=gradient, copy=copy)
    rule, numbers = _rule(settings)
    name = f"update<{rule}, {C_TYPES[gradient]}, {C_TYPES[copy]}>"
    floats = [np.float32(number) for number in numbers]
    scalars: tuple[np.generic, ...] = (np.uint64(count), *floats)
    return Kernel(FILE, name, *flat(count, 4), scalars, code=CODE)


def _rule(settings: Update) -> tuple[str, tuple[float, ...]]:
    """The rule and its numbers: shares of momentum and squares, epsilon, weight decay."""
    decay = settings.weight_decay
    if isinstance(settings, SgdUpdate):
        rule = "NESTEROV" if settings.nesterov else "SGD"
        return rule, (settings.factor, 1.0, 0.0, 0.0, 0.0, decay)
    if isinstance(settings, AdamUpdate):
        first, second = settings.betas
        rule = "ADAMW" if settings.decoupled else "ADAM"
        return rule, (first, 1 - first, second, 1 - second, settings.epsilon, decay)
    rule = "PLAIN_RMSPROP" if settings.momentum is None else "RMSPROP"
    kept = settings.smoothing
    return rule, (settings.factor, 1.0, kept, 1 - kept, settings.epsilon, decay)


def adam_step(betas: tuple[float, float]) -> Kernel:
    """Pointers: scaler or 0 -> steps (float32 scalar), corrections (float64, float32). Counts the
    step, and computes what `update` reads."""
    scalars = tuple(np.float64(beta) for beta in betas)
    return Kernel(FILE, "adam_step", (1, 1, 1), (1, 1, 1), scalars, code=CODE)


def squares(count: int, gradient: str = "float32") -> Kernel:
    """Pointers: gradient [count] of that type -> sums [`BLOCKS`] of its squares, float32."""
    require_count(count)
    require_floating(gradient=gradient)
    each = vector(gradient)
    name = f"squares<{C_TYPES[gradient]}, {each}>"
    blocks, threads = (BLOCKS, 1, 1), (THREADS, 1, 1)
    return Kernel(FILE, name, blocks, threads, (np.uint64(count),), code=CODE)


def clip_factor(sums: int, norm: float) -> Kernel:
    """Pointers: sums [sums], scaler or 0 -> factor (float32 scalar)."""
    require_count(sums)
    scalars = (np.int32(sums), np.float32(norm), np.float32(SMALLEST))
    return Kernel(FILE, "clip_factor", (1, 1, 1), (THREADS, 1, 1), scalars, code=CODE)
