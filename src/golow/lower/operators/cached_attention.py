"""Attention of new tokens to themselves and to those before, whose keys and values are in a cache.
Only a pass makes it (`golow.lower.recognise.caches`)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from golow.lower.ir.graph import Ref
from golow.lower.ir.operator import Operator

if TYPE_CHECKING:
    from torch import Tensor


class CachedAttention(Operator, frozen=True, kw_only=True):
    """softmax(scale * query key^T) value, where row i sees the first position + i + 1 keys, or, if
    ``window`` is not 0, as many as that of the last of these.

    query: [B, H, L, E], key: [B, G, S, E], value: [B, G, S, D], where H is a multiple of G and S
    the length of the longest text; the result is [B, H, L, D]. position: int64, one element or B,
    each at most S - L. scale: None is 1 / sqrt(E).
    """

    query: Ref
    key: Ref
    value: Ref
    position: Ref
    scale: float | None
    window: int = 0

    @staticmethod
    def meaning(
        query: Tensor,
        key: Tensor,
        value: Tensor,
        position: Tensor,
        scale: float | None,
        window: int = 0,
    ) -> Tensor:
        import torch

        from golow.lower.decompositions.attention import for_every_head, scores_of

        key, value = for_every_head(query, key, value)
        scores = scores_of(query, key, None, False, scale)
        rows = position.reshape(-1, 1, 1) + torch.arange(query.shape[2], device=query.device)
        apart = rows[..., None] - torch.arange(key.shape[2], device=query.device)
        seen = (apart >= 0) & (apart < (window or key.shape[2]))
        return scores.masked_fill(~seen, float("-inf")).softmax(dim=-1) @ value
