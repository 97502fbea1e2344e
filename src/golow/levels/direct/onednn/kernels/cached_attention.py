"""Attention of a few rows over a cache, whose time is that of reading what is in it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from golow.levels.direct.onednn.kernels import Kernel, parts
from golow.levels.direct.onednn.kernels.flash_attention import Placed, bits

FOLDER = Path(__file__).parent
FEW, JOINED = (
    "\n".join((FOLDER / name).read_text(encoding="utf-8") for name in names)
    for names in (("panels.h", "cached_attention.cpp"), ("joined_attention.cpp",))
)
FEWEST_PARTS = 8  # that threads should have to share
SHORTEST = 256  # keys of a part: of fewer, putting parts together costs more than it gives


def splits_of(key: Placed) -> int:
    """Into how many parts the keys [B, G, S, E] of a group are split."""
    images, groups, longest, _ = key.shape
    return max(1, min(FEWEST_PARTS // (images * groups), longest // SHORTEST))


def few_rows(
    placed: Sequence[Placed], scale: float, window: int = 0, own_positions: bool = False
) -> Kernel:
    """Pointers: query [B, H, L, E], key [B, G, S, E], value [B, G, S, D], position (int64) ->
    [B, H, L, D]; or, where keys are split, what `joined` reads. placed: query, key, value, result.
    window: as of `CachedAttention`. own_positions: there are B of them."""
    images, heads, rows, inner = placed[0].shape
    _, groups, longest, width = placed[2].shape
    splits = splits_of(placed[1])
    numbers = (
        *parts(images * groups * splits, images * heads * rows * longest * inner),
        splits, groups, heads // groups, rows, longest, inner, width, bits(scale),
        *(step for item in placed for step in item.steps[:3]), window, int(own_positions),
    )  # fmt: skip
    return Kernel(FEW, numbers)


def joined(query: Placed, key: Placed, result: Placed) -> Kernel:
    """Pointers: what the parts of `few_rows` gave (`parts_shape`) -> [B, H, L, D]."""
    images, heads, rows, _ = query.shape
    groups, width = key.shape[1], result.shape[3]
    numbers = (
        *parts(images * heads * rows, images * heads * rows * splits_of(key) * width),
        splits_of(key), groups, heads // groups, rows, width, *result.steps[:3],
    )  # fmt: skip
    return Kernel(JOINED, numbers)


def parts_shape(query: Placed, key: Placed, width: int) -> tuple[int, ...]:
    """Return the shape of what parts write: of each row the largest score and weighted sums."""
    images, heads, rows, _ = query.shape
    return images * heads * rows * splits_of(key), width + 2
