"""Running sums along an axis."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from golow.levels.direct.cudnn.shared_kernels.lines import running_sums
from golow.levels.direct.cudnn.steps.strided_copies import new_rows
from golow.levels.direct.implementation import Implementation
from golow.lower.operators.cumulative_sum import CumulativeSum

if TYPE_CHECKING:
    from golow.levels.direct.cudnn.build.builder import Builder


def cumulative_sum(build: Builder, arguments: CumulativeSum) -> None:
    """In float32, or in the integers' own type."""
    x, axis = build.values.rows(arguments.x), arguments.axis
    result = new_rows(build, arguments.dtype)
    outer, inner = math.prod(x.shape[:axis]), math.prod(x.shape[axis + 1 :])
    kernel = running_sums(x.dtype, result.dtype, outer, x.shape[axis], inner)
    build.steps.kernel(kernel, [x], [result])
    build.values.define(0, result)


IMPLEMENTATIONS = (Implementation(CumulativeSum, cumulative_sum),)
