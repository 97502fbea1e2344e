"""Attention of one new token of each text, whose key and value join those in a cache."""

from __future__ import annotations

from typing import TYPE_CHECKING

from golow.lower.ir.graph import Ref
from golow.lower.ir.operator import Operator
from golow.lower.operators.cache_update import CacheUpdate
from golow.lower.operators.cached_attention import CachedAttention

if TYPE_CHECKING:
    from torch import Tensor


class StepAttention(Operator, frozen=True, kw_only=True):
    """Write rows of keys and values at a position, and attend to all up to it, as `CacheUpdate` and
    `CachedAttention` do. Only a pass makes it (`golow.lower.recognise.step_attention`). The results
    are [B, H, 1, E], and both caches.

    query: [B, H, 1, E]; key, value: [B, G, 1, E], the new rows; keys, values: [B, G, S, E], the
    caches. cosine, sine: None, or E elements by which query and key are turned before: x cosine +
    (-x2, x1) sine, where x1 and x2 are the halves of a row (Su et al. 2021, "RoFormer").
    """

    query: Ref
    key: Ref
    value: Ref
    keys: Ref
    values: Ref
    position: Ref
    cosine: Ref | None
    sine: Ref | None
    scale: float | None
    window: int

    @property
    def results(self) -> int:
        return 3

    @staticmethod
    def meaning(
        query: Tensor,
        key: Tensor,
        value: Tensor,
        keys: Tensor,
        values: Tensor,
        position: Tensor,
        cosine: Tensor | None,
        sine: Tensor | None,
        scale: float | None,
        window: int,
    ) -> tuple[Tensor, Tensor, Tensor]:
        if cosine is not None and sine is not None:
            query, key = (turned(x, cosine.reshape(-1), sine.reshape(-1)) for x in (query, key))
        keys = CacheUpdate.meaning(keys, key, position, 2)
        values = CacheUpdate.meaning(values, value, position, 2)
        found = CachedAttention.meaning(query, keys, values, position, scale, window)
        return found, keys, values


def turned(x: Tensor, cosine: Tensor, sine: Tensor) -> Tensor:
    """Rows whose halves are turned by an angle for each pair of elements."""
    import torch

    first, second = x.chunk(2, -1)
    return x * cosine + torch.cat([-second, first], -1) * sine
