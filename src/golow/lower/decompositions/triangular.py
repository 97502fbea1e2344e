"""Systems of equations with triangular matrices, as in the chunks of gated delta networks (Yang et
al. 2024, arXiv:2412.06464).

The inverse of [[P, 0], [C, Q]] is [[P', 0], [-Q' C P', Q']] with the inverses P' and Q' of its
blocks: all blocks of one size are products of a batch, and log2(n) sizes make an inverse of n rows.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

aten = torch.ops.aten
MOST_ROWS = 512


def solve(
    A: Tensor,  # as ATen names them
    B: Tensor,
    *,
    upper: bool,
    left: bool = True,
    unitriangular: bool = False,
) -> Any:
    """``linalg_solve_triangular``: X with A X = B, or X A = B."""
    rows = A.shape[-1]
    if not 0 < rows <= MOST_ROWS or not A.dtype.is_floating_point:
        return NotImplemented
    if not left:
        turned = solve(A.mT, B.mT, upper=not upper, unitriangular=unitriangular)
        return turned.mT
    if upper:
        lower = solve(A.flip([-2, -1]), B.flip([-2]), upper=False, unitriangular=unitriangular)
        return lower.flip([-2])
    if not unitriangular:
        diagonal = torch.diagonal(A, 0, -2, -1).unsqueeze(-1)
        A, B = A / diagonal, B / diagonal
    return _inverse(A) @ B


def _inverse(lower: Tensor) -> Tensor:
    """The inverse of a lower triangular matrix with ones on its diagonal. The rest is not read."""
    rows = lower.shape[-1]
    whole = 1 << (rows - 1).bit_length()
    more = whole - rows
    padded = aten.constant_pad_nd.default(lower, [0, more, 0, more], 0.0) if more else lower
    outer = lower.shape[:-2]
    found = padded.new_ones((*outer, whole, 1, 1))
    size = 1
    while size < whole:
        blocks = whole // (2 * size)
        tiles = padded.reshape(*outer, blocks, 2, size, blocks, 2, size)
        below = tiles.select(-5, 1).select(-2, 0)  # [..., blocks, size, blocks, size]
        below = torch.diagonal(below, 0, -4, -2).movedim(-1, -3)
        pairs = found.reshape(*outer, blocks, 2, size, size)
        first, second = pairs.select(-3, 0), pairs.select(-3, 1)
        corner = -below if size == 1 else -(second @ (below @ first))
        top = torch.cat([first, torch.zeros_like(first)], -1)
        found = torch.cat([top, torch.cat([corner, second], -1)], -2)
        size *= 2
    return found.reshape(*outer, whole, whole)[..., :rows, :rows]


DEFINITIONS = {"aten.linalg_solve_triangular.default": solve}
