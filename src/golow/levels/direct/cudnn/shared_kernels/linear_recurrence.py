"""Launches `linear_recurrence.cu`."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from golow.levels.direct.cudnn.problems.element_types import C_TYPES
from golow.levels.direct.cudnn.shared_kernels import FOLDER, Kernel
from golow.levels.direct.cudnn.shared_kernels.geometry import require_floating, require_positive
from golow.levels.direct.kernel_views import View, merged_axes

FILE = FOLDER / "linear_recurrence.cu"
THREADS = 128  # of a block: lines are few, and each is long
AXES = 4  # of lines, at most


def forward(decay: View, x: View, y: View, shape: Sequence[int], axis: int) -> Kernel:
    """Pointers: decay, x -> y, each seen at the indices of the shape. Raises ValueError for more
    than four axes besides that of the steps."""
    return _launched("linear_recurrence", [decay, x, y], 2, shape, axis)


def backward(
    gradient: View, decay: View, states: View, made: View, shape: Sequence[int], axis: int
) -> Kernel:
    """Pointers: gradient, decay, states -> gradients of decay and of x, which are seen alike.
    Raises ValueError as `forward` does."""
    views = [gradient, decay, states, made, made]
    return _launched("linear_recurrence_backward", views, 3, shape, axis)


def _launched(
    name: str, views: Sequence[View], first: int, shape: Sequence[int], axis: int
) -> Kernel:
    """first: the position of the first view that is written."""
    require_floating(**{f"operand {i}": view.dtype for i, view in enumerate(views)})
    # Neighbouring threads write neighbouring elements.
    of_lines = [view._replace(strides=_without(view.strides, axis)) for view in views]
    lines = merged_axes(_without(shape, axis), of_lines, first)
    missing = AXES - len(lines.sizes)
    if missing < 0:
        raise ValueError(f"lines along {len(lines.sizes)} axes; the kernel takes {AXES}")
    count = math.prod(lines.sizes)
    require_positive(lines=count, length=shape[axis])
    sizes = (*[1] * missing, *lines.sizes)
    scalars = [count, shape[axis], *sizes[1:]]
    for view, strides in zip(views, lines.strides, strict=True):
        scalars += [view.start, *[0] * missing, *strides, view.strides[axis]]
    parameters = ", ".join(C_TYPES[view.dtype] for view in views[: first + 1])
    blocks = -(-count // THREADS)
    grid, block = (blocks, 1, 1), (THREADS, 1, 1)
    return Kernel(FILE, f"{name}<{parameters}>", grid, block, tuple(map(np.int64, scalars)))


def _without(sizes: Sequence[int], axis: int) -> tuple[int, ...]:
    return (*sizes[:axis], *sizes[axis + 1 :])
