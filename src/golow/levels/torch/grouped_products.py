"""Products of groups of rows, as mixtures of experts have them, for which PyTorch has no kernels in
float64."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor


def grouped_product(
    a: Tensor,
    b: Tensor,
    offs: Tensor | None = None,
    bias: Tensor | None = None,
    out_dtype: torch.dtype | None = None,
) -> Tensor:
    """``aten._grouped_mm``. offs: where each group ends, on the axis that the matrix of two axes
    has and the other one or the result has groups for: its rows [S, K] x [G, K, N], its columns
    [G, M, K] x [K, S], or what is summed [M, S] x [S, N]. What is in no group is zero."""
    if offs is None:
        found = a @ b
    elif a.dim() == b.dim() == 2:
        found = torch.stack([a[:, part] @ b[part] for part in _groups(offs)])
    elif a.dim() == 2:
        found = a.new_zeros(a.shape[0], b.shape[2])
        for group, part in enumerate(_groups(offs)):
            found[part] = a[part] @ b[group]
    else:
        found = a.new_zeros(a.shape[1], b.shape[1])
        for group, part in enumerate(_groups(offs)):
            found[:, part] = a[group] @ b[:, part]
    found = found if bias is None else found + bias
    return found if out_dtype is None else found.to(out_dtype)


def _groups(offs: Tensor) -> Iterator[slice]:
    start = 0
    for end in offs.tolist():
        yield slice(start, end)
        start = end
