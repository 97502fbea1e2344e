"""Threads for rows [rows, columns], of which a block takes one."""

from __future__ import annotations

from golow.levels.vendor.cudnn.kernels import FOLDER

ROWS = (FOLDER / "rows.cuh").read_text()  # stands before these kernels


def threads_for(columns: int) -> int:
    """A warp a row where rows are short, else about eight columns a thread."""
    if columns <= 128:
        return 32
    return 128 if columns <= 2048 else 512
