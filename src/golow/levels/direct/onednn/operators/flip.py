"""Axes reversed: a copy."""

from __future__ import annotations

from typing import Any

import numpy as np

from golow.levels.direct.implementation import Implementation
from golow.levels.direct.onednn.build.builder import Builder
from golow.levels.direct.onednn.steps.array_steps import of_arrays
from golow.levels.direct.onednn.steps.strided_copies import copied, strided, view_of
from golow.lower.operators.flip import Flip


def flip(build: Builder, arguments: Flip) -> None:
    """A copy."""
    axes = arguments.axes

    if build.generates:
        tensor = strided(build, arguments.x)
        view = view_of(tensor, tensor.shape)
        ends = sum((tensor.shape[axis] - 1) * view.strides[axis] for axis in axes)
        turned = tuple(-s if i in axes else s for i, s in enumerate(view.strides))
        copied(build, tensor, view._replace(strides=turned, start=view.start + ends))
        return

    def run(x: Any, y: Any) -> None:
        y[...] = np.flip(x, axes)

    of_arrays(build, run, arguments.x)


IMPLEMENTATIONS = (Implementation(Flip, flip),)
