"""Threads for rows [rows, columns], with one block for each row."""

from __future__ import annotations

from golow.levels.vendor.cudnn.kernels import FOLDER

ROWS = (FOLDER / "rows.cuh").read_text()  # included before these kernels


def threads_for(columns: int) -> int:
    """A warp for short rows, otherwise about eight columns for each thread."""
    if columns <= 128:
        return 32
    return 128 if columns <= 2048 else 512
