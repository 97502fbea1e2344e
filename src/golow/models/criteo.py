"""The sizes of Criteo's Kaggle data set (Display Advertising Challenge, 2014). Imports no torch."""

from __future__ import annotations

DENSE = 13
"""How many numbers a sample has besides its categories."""

# How many values each category has, as facebookresearch/dlrm counts them.
ROWS = (
    1460, 583, 10131227, 2202608, 305, 24, 12517, 633, 3, 93145, 5683, 8351593, 3194, 27, 14992,
    5461306, 10, 5652, 2173, 4, 7046547, 18, 15, 286181, 105, 142572,
)  # fmt: skip


def capped(limit: int = 100_000) -> tuple[int, ...]:
    """The categories' values, of each at most that many."""
    return tuple(min(rows, limit) for rows in ROWS)
