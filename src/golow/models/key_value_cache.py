"""The keys and values of the tokens before, as state that a step writes in place."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional


class KeyValueCache(nn.Module):
    """Keys and values of one attention layer, for texts of up to ``longest`` tokens.

    The rows of tokens that were not written yet are never seen, so they need not be cleared
    between two texts.
    """

    keys: Tensor
    values: Tensor

    def __init__(self, batch: int, heads: int, longest: int, size: int) -> None:
        super().__init__()
        for name in ("keys", "values"):
            self.register_buffer(name, torch.zeros(batch, heads, longest, size))

    def attend(self, query: Tensor, key: Tensor, value: Tensor, position: Tensor) -> Tensor:
        """Keep the keys and values of new tokens, and let each of them see what came before.

        query: [batch, heads, count, size], as the result; key and value: [batch, groups, count,
        size], where heads is a multiple of groups. position: int64, without axes, or [batch, 1]:
        how many tokens were kept before, of all texts or of each.
        """
        rows = position + torch.arange(key.shape[2], device=key.device)
        write_rows(self.keys, rows, key)
        write_rows(self.values, rows, value)
        seen = seen_rows(rows, self.keys.shape[2])
        attended: Tensor = functional.scaled_dot_product_attention(
            query,
            self.keys,
            self.values,
            attn_mask=seen,
            enable_gqa=query.shape[1] != key.shape[1],
        )
        return attended


def write_rows(cache: Tensor, rows: Tensor, new: Tensor) -> None:
    """Write the rows of new tokens, [batch, groups, count, size]. rows: [count], or [batch, count]
    if texts have positions of their own."""
    if rows.dim() == 1:
        cache.index_copy_(2, rows, new)
    else:
        cache.scatter_(2, rows[:, None, :, None].expand_as(new), new)


def seen_rows(rows: Tensor, longest: int) -> Tensor:
    """Let each token see the rows up to its own: bool [count, longest], or [batch, 1, count,
    longest] if texts have positions of their own."""
    places = rows if rows.dim() == 1 else rows[:, None]
    return torch.arange(longest, device=rows.device) <= places[..., None]
