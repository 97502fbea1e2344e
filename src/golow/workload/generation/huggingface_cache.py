"""A static cache of transformers whose texts may each have a position of their own. Importing this
imports transformers."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from transformers import StaticCache
from transformers.cache_utils import StaticLayer

from golow.models.key_value_cache import seen_rows, write_rows


class RowsLayer(StaticLayer):  # type: ignore[misc]
    """A layer's cache. rows: where each text's new tokens belong, int64 [batch, count]; None where
    all texts go on behind as many tokens, as transformers has it."""

    rows: Tensor | None = None

    def update(self, key: Tensor, value: Tensor, *rest: Any, **named: Any) -> tuple[Tensor, Tensor]:
        """Write the rows of new tokens, and return the keys and values of all."""
        if self.rows is None:
            found: tuple[Tensor, Tensor] = super().update(key, value, *rest, **named)
            return found
        write_rows(self.keys, self.rows, key)
        write_rows(self.values, self.rows, value)
        return self.keys, self.values


def static_cache(config: Any, longest: int) -> StaticCache:
    """Return a cache for texts of up to so many tokens. A layer with a sliding window keeps all of
    them, and its mask hides the others."""
    cache = StaticCache(config=config, max_cache_len=longest)
    cache.layers = [RowsLayer(max_cache_len=longest) for _ in cache.layers]
    return cache


def masks_of(
    config: Any, rows: Tensor, longest: int, dtype: torch.dtype
) -> Tensor | dict[str, Tensor]:
    """Return which keys each token sees, [batch, 1, count, longest], in the form in which a model
    of this configuration takes masks: one, or one for each kind of layer; truth values, or what
    its own attention adds to scores, in their dtype."""
    seen, window = seen_rows(rows, longest), getattr(config, "sliding_window", None)
    masks = {"full_attention": seen}
    if window is not None:
        near = torch.arange(longest, device=rows.device) > rows[:, None, :, None] - window
        masks["sliding_attention"] = seen & near
    if config._attn_implementation == "eager":
        nothing = torch.zeros((), dtype=dtype, device=rows.device)
        lowest = torch.finfo(dtype).min
        masks = {kind: nothing.masked_fill(~mask, lowest) for kind, mask in masks.items()}
    return masks if getattr(config, "layer_types", None) else list(masks.values())[-1]
