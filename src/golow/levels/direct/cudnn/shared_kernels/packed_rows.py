"""Launches `packed_rows.cu`."""

from __future__ import annotations

import numpy as np

from golow.levels.direct.cudnn.problems.element_types import C_TYPES
from golow.levels.direct.cudnn.shared_kernels import FOLDER, Kernel
from golow.levels.direct.cudnn.shared_kernels.fused_pointwise import WIDE
from golow.levels.direct.cudnn.shared_kernels.geometry import FLOATING, VECTOR, flat, vector
from golow.levels.direct.kernel_views import Axes, View

FILE = FOLDER / "packed_rows.cu"
LEAST = 8  # vectors in a row: of shorter rows, too many vectors are in two


def packs_rows(source: View, target: View, axes: Axes) -> bool:
    """True if a copy is one from rows with gaps to rows without, of a length for which other
    kernels copy single elements: the logits of a language model whose vocabulary is odd."""
    floating = source.dtype in FLOATING and target.dtype in FLOATING
    if not floating or len(axes.sizes) != 2:
        return False
    (pitch, inner), (width, inner_target) = axes.strides
    length, each = axes.sizes[1], vector(source.dtype, target.dtype)
    in_rows = inner == inner_target == 1 and width == length and pitch >= length
    return in_rows and target.start == 0 and length % each != 0 and length >= LEAST * each


def packed_rows(source: View, target: View, axes: Axes) -> Kernel:
    """Pointers: source -> target, multiples of 16 bytes. The copy must be one that `packs_rows`."""
    (rows, length), pitch = axes.sizes, axes.strides[0][0]
    each, count = vector(source.dtype, target.dtype), rows * length
    wide = source.start + rows * pitch >= WIDE
    index = np.uint64 if wide else np.uint32
    lines = (
        f"using Index = {'size_t' if wide else 'unsigned'};",
        f"using X = {C_TYPES[source.dtype]};",
        f"using Y = {C_TYPES[target.dtype]};",
        f"constexpr int VECTOR = {each};",
    )
    grid, block = flat(count, each)
    scalars = tuple(index(number) for number in (count, length, pitch - length, source.start))
    return Kernel(FILE, "packed_rows", grid, block, scalars, 0, VECTOR + "\n".join(lines) + "\n\n")
