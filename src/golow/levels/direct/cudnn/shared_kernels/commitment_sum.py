"""Launches `commitment_sum.cu`."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from golow.levels.direct.cudnn.problems.element_types import C_TYPES
from golow.levels.direct.cudnn.shared_kernels import FOLDER, Kernel
from golow.levels.direct.cudnn.shared_kernels.elements import VALUES
from golow.levels.direct.cudnn.shared_kernels.fused_pointwise import WIDE, macro, reach
from golow.levels.direct.cudnn.shared_kernels.geometry import THREADS
from golow.levels.direct.cudnn.shared_kernels.rows import ROWS
from golow.levels.direct.kernel_views import Axes, View, merged_axes

FILE = FOLDER / "commitment_sum.cu"
MOST_BLOCKS = 1024


def weighing(view: View, shape: Sequence[int], first: int) -> Kernel:
    """Pointers: a tensor, seen at the indices of ``shape`` -> the sums of its parts, one per block
    (float64). Together they are its share in `golow.worker.results.weighted_sum`. first: how many
    elements the outputs before it have."""
    steps = tuple(math.prod(shape[axis + 1 :]) for axis in range(len(shape)))
    axes = merged_axes(shape, (View("int64", steps), view), 1)  # read in the memory's order
    lines, places, elements = ["Index rest = i;"], [str(view.start)], [f"{first % 2**32}u"]
    for axis in reversed(range(len(axes.sizes))):
        index, size = f"i_{axis}", axes.sizes[axis]
        lines.append(f"const Index {index} = rest{f' % {size}; rest /= {size}' if axis else ''};")
        elements.append(f"{index} * {axes.strides[0][axis]}")
        places.append(f"{index} * {axes.strides[1][axis]}")
    lines.append(f"const unsigned element = {' + '.join(elements)};")
    lines.append(f"const Index place = {' + '.join(places)};")
    count = math.prod(shape)
    blocks = min(max(-(-count // THREADS), 1), MOST_BLOCKS)
    wide = max(count + blocks * THREADS, reach([view], Axes(axes.sizes, axes.strides[1:]))) >= WIDE
    index = f"using Index = {'size_t' if wide else 'unsigned'};\n"
    code = ROWS + VALUES + index + macro("LOCATE", lines) + "\n\n"
    expression = f"weigh<{C_TYPES[view.dtype]}, {THREADS}>"
    scalars = ((np.uint64 if wide else np.uint32)(count),)
    return Kernel(FILE, expression, (blocks, 1, 1), (THREADS, 1, 1), scalars, 0, code)
