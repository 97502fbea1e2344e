"""Launches the kernel that chooses the next tokens and moves on."""

from __future__ import annotations

import math

from golow.levels.direct.cudnn.shared_kernels import FOLDER, Kernel
from golow.levels.direct.cudnn.shared_kernels.blocks import ceiling, integers
from golow.levels.direct.cudnn.shared_kernels.columns import COLUMNS, Sums
from golow.levels.direct.cudnn.shared_kernels.geometry import MOST_PARTS, require_positive

FILE = FOLDER / "likeliest.cu"
THREADS, EACH = 256, 4  # as in the file
MOST_BLOCKS = 132


def likeliest(texts: int, vocabulary: int, longest: int) -> Sums:
    """Pointers: logits (float32 [texts, vocabulary]) -> tokens (int64 [texts]), the position
    (int64), which becomes one more, the text (int64 [texts, longest]), then those of `Sums`. Raises
    ValueError for more texts than a grid takes."""
    require_positive(texts=texts, vocabulary=vocabulary, longest=longest)
    if texts > MOST_PARTS:
        raise ValueError(f"{texts} texts; one launch takes {MOST_PARTS}")
    each = EACH if texts == 1 else math.gcd(vocabulary, EACH)
    parts = min(MOST_BLOCKS, ceiling(vocabulary, THREADS * each))
    scalars = integers(vocabulary, longest)
    grid, block = (parts, texts, 1), (THREADS, 1, 1)
    kernel = Kernel(FILE, f"likeliest<{each}>", grid, block, scalars, code=COLUMNS)
    return Sums(kernel, 2 * parts * texts, 1 + texts)
