"""Clipping by norm: what all gradients are multiplied by."""

from __future__ import annotations

from functools import partial

import numpy as np

from golow.levels.direct.implementation import Implementation
from golow.levels.direct.onednn.bindings.library import Descriptor
from golow.levels.direct.onednn.build import updating
from golow.levels.direct.onednn.build.builder import Builder
from golow.levels.direct.onednn.kernels import step_numbers
from golow.levels.direct.onednn.steps import array_steps
from golow.lower.operators.clip_factor import SMALLEST, ClipFactor


def clip_factor(build: Builder, arguments: ClipFactor) -> None:
    """Add steps over the gradients' memory, in any layout: padding is zero."""
    rows = [updating.flat(build.values.tensor(gradient)) for gradient in arguments.gradients]
    factor = array_steps.result(build)
    if build.generates:
        sizes = [row.shape[0] for row in rows]
        shape = (step_numbers.pieces(sizes),)
        sums = build.memory.new(f"{build.current.name}.squares", shape, Descriptor.plain(shape))
        build.steps.kernel(step_numbers.squares(sizes), rows, [sums])
        finish = step_numbers.clip_factor(shape[0], arguments.norm, SMALLEST)
        build.steps.kernel(finish, [sums], [factor])
    else:
        build.steps.array_call(partial(_factor, norm=arguments.norm), rows, [factor])
    build.values.define(0, factor)


def _factor(*rows: np.ndarray, norm: float) -> None:
    *gradients, factor = rows
    # A dot product of float32 is summed by blocks; their few sums are added in float64.
    found = sum(float(np.dot(row, row)) for row in gradients) ** 0.5
    factor[...] = min(1.0, norm / (found + SMALLEST))


IMPLEMENTATIONS = (Implementation(ClipFactor, clip_factor),)
