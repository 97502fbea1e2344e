"""Rows of a cache, written from a position on that is data: what a step of a language model does to
its keys and values. Only a pass makes it (`golow.lower.recognise.caches`)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from golow.lower.ir.graph import Ref
from golow.lower.ir.operator import Operator

if TYPE_CHECKING:
    from torch import Tensor


class CacheUpdate(Operator, frozen=True, kw_only=True):
    """x with rows in the place of as many of its own along an axis, from a position on.

    position: int64, one element, or one for each element of the first axis. rows: as x but for that
    axis, from 0 to below the size of which the positions of all rows are.
    """

    x: Ref
    rows: Ref
    position: Ref
    axis: int

    @staticmethod
    def meaning(x: Tensor, rows: Tensor, position: Tensor, axis: int) -> Tensor:
        import torch

        places = position.reshape(-1, 1) + torch.arange(rows.shape[axis], device=x.device)
        sizes = [size if k == axis else 1 for k, size in enumerate(rows.shape)]
        sizes[0] = max(sizes[0], len(places))
        return x.scatter(axis, places.reshape(sizes).expand_as(rows), rows)
