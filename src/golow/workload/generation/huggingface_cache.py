"""Static caches of transformers: rows in which each text may have its own position, and a source
that is kept whole. Importing this imports transformers."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from transformers import DynamicCache, EncoderDecoderCache, StaticCache
from transformers.cache_utils import Cache, DynamicLayer, StaticLayer

from golow.models.key_value_cache import seen_rows, write_rows


class RowsLayer(StaticLayer):  # type: ignore[misc]
    """Cache of a layer. rows: positions of each text's new tokens, int64 [batch, count]; None if
    all texts have the same position, as in transformers."""

    rows: Tensor | None = None

    def update(self, key: Tensor, value: Tensor, *rest: Any, **named: Any) -> tuple[Tensor, Tensor]:
        """Write the rows of the new tokens, and return all keys and values."""
        if self.rows is None:
            found: tuple[Tensor, Tensor] = super().update(key, value, *rest, **named)
            return found
        write_rows(self.keys, self.rows, key)
        write_rows(self.values, self.rows, value)
        return self.keys, self.values


class SourceLayer(DynamicLayer):  # type: ignore[misc]
    """Keys and values of an encoder's output, which a new source overwrites."""

    def update(self, key: Tensor, value: Tensor, *rest: Any, **named: Any) -> tuple[Tensor, Tensor]:
        """Keep the keys and values of a whole source, and return them."""
        if not self.is_initialized:
            self.lazy_initialization(key, value)
            self.keys, self.values = torch.zeros_like(key), torch.zeros_like(value)
        self.keys.copy_(key)
        self.values.copy_(value)
        return key, value


def static_cache(config: Any, longest: int) -> StaticCache:
    """Return a cache for texts of up to this many tokens. A layer with a sliding window keeps all
    of them; its mask hides those outside the window."""
    cache = StaticCache(config=config, max_cache_len=longest)
    cache.layers = [RowsLayer(max_cache_len=longest) for _ in cache.layers]
    return cache


def masks_of(
    config: Any, rows: Tensor, longest: int, dtype: torch.dtype
) -> Tensor | dict[str, Tensor]:
    """Return which keys each token sees, [batch, 1, count, longest], in the form that a model of
    this configuration accepts: one mask, or one per kind of layer; of bool, or of the values that
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


def trial_caches() -> EncoderDecoderCache:
    """Return caches to which a decoder's first call adds a layer for each of its own."""
    return EncoderDecoderCache(DynamicCache(), Cache(layer_class_to_replicate=SourceLayer))


def static_layers(layers: list[DynamicLayer], longest: int) -> list[RowsLayer]:
    """Return layers for up to this many tokens, with the batch, heads and sizes of these."""
    found = [RowsLayer(max_cache_len=longest) for _ in layers]
    for layer, like in zip(found, layers, strict=True):
        layer.lazy_initialization(like.keys, like.values)
    return found


def decoder_caches(
    own: list[RowsLayer], source: list[SourceLayer], *, known: bool
) -> EncoderDecoderCache:
    """Return the caches of a decoder's step. known: the source was read before."""
    found = EncoderDecoderCache(Cache(layers=own), Cache(layers=source))
    found.is_updated = dict.fromkeys(range(len(source)), known)
    return found
