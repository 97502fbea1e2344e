"""A step of a GPT-2 that generates text: the new tokens only, with a cache for those before."""

from __future__ import annotations

from collections.abc import Iterable
from typing import cast

import torch
from torch import Tensor, nn

from golow.models.gpt2 import Gpt2, Gpt2Block
from golow.models.key_value_cache import KeyValueCache


class Gpt2Step(nn.Module):
    """Inputs: the new token ids int64 [batch, count] and how many tokens came before, int64
    without axes or, of each text, [batch, 1]. Output: the logits of the token that follows the last
    one, [batch, vocabulary].

    The weights are the model's own; the caches are buffers. A text begins at position 0, with any
    number of tokens at once, and continues where the last call ended.
    """

    def __init__(self, model: Gpt2, batch: int, longest: int) -> None:
        super().__init__()
        self.model = model
        sizes = model.sizes
        self.caches = nn.ModuleList(
            KeyValueCache(batch, sizes.heads, longest, sizes.width // sizes.heads)
            for _ in model.transformer.h
        )

    def forward(self, tokens: Tensor, position: Tensor) -> Tensor:
        """The logits of the next token."""
        decoder = self.model.transformer
        positions = position + torch.arange(tokens.shape[1], device=tokens.device)
        hidden = decoder.wte(tokens) + decoder.wpe(positions)
        blocks = cast(Iterable[Gpt2Block], decoder.h)
        for block, cache in zip(blocks, cast(Iterable[KeyValueCache], self.caches), strict=True):
            query, key, value = block.attn.project(block.ln_1(hidden))
            hidden = hidden + block.attn.join(cache.attend(query, key, value, position))
            hidden = hidden + block.mlp(block.ln_2(hidden))
        logits: Tensor = self.model.lm_head(decoder.ln_f(hidden[:, -1]))
        return logits
