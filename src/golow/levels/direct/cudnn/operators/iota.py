"""Numbers in equal steps, from their indices."""

from __future__ import annotations

from typing import TYPE_CHECKING

from golow.levels.direct.cudnn.shared_kernels.elements import elements
from golow.levels.direct.cudnn.steps.strided_copies import new_rows, whole
from golow.levels.direct.implementation import Implementation
from golow.lower.operators.iota import Iota

if TYPE_CHECKING:
    from golow.levels.direct.cudnn.build.builder import Builder


def iota(build: Builder, arguments: Iota) -> None:
    """Whole numbers are computed as such; others in double precision."""
    result = new_rows(build, arguments.dtype)
    start, step = arguments.start, arguments.step
    if isinstance(start, int) and isinstance(step, int):
        formula, kind = f"{start}LL + i_0 * {step}LL", "int64"
    else:
        formula, kind = f"(float)({float(start)!r} + i_0 * {float(step)!r})", "float32"
    build.steps.kernel(elements(formula, [], whole(result), result.shape, kind), [], [result])
    build.values.define(0, result)


IMPLEMENTATIONS = (Implementation(Iota, iota),)
