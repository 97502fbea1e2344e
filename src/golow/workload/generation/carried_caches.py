"""Text models whose caches are inputs and outputs, for runtimes that keep them as state."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.nn import functional

from golow.models.gpt2 import Gpt2
from golow.models.gpt2_step import Gpt2Step
from golow.workload.generation.huggingface_step import Call


class JoinedCache(nn.Module):
    """Keys and values of a layer, appended to the earlier ones that it is given."""

    keys: Tensor
    values: Tensor

    def attend(self, query: Tensor, key: Tensor, value: Tensor, position: Tensor) -> Tensor:
        """Attend from new tokens to earlier ones and themselves, as `KeyValueCache` does."""
        self.keys = torch.cat([self.keys, key], 2)
        self.values = torch.cat([self.values, value], 2)
        places = torch.arange(self.keys.shape[2], device=key.device)
        rows = position + torch.arange(query.shape[2], device=key.device)
        seen = places[None] <= rows[:, None]
        return functional.scaled_dot_product_attention(query, self.keys, self.values, seen)


class CarriedCaches(nn.Module):
    """Inputs: tokens int64 [batch, count]; the number of earlier tokens, int64 [1]; the text of the
    batch that each row continues, int32 [batch]; keys and values of each layer, float [batch,
    heads, before, size]. Outputs: logits [batch, vocabulary], and keys and values including the new
    ones.

    The choice of texts is that of a beam search: OpenVINO recognises a cache by it.
    """

    def forward(self, tokens: Tensor, before: Tensor, texts: Tensor, *past: Tensor) -> Any:
        """Return the logits of the next token, and the caches."""
        logits, present = self.step(tokens, before, [item.index_select(0, texts) for item in past])
        return (logits, *present)

    def step(
        self, tokens: Tensor, before: Tensor, past: list[Tensor]
    ) -> tuple[Tensor, list[Tensor]]:
        """Run the model with the caches of the texts that continue."""
        raise NotImplementedError

    def shapes(self) -> list[tuple[int, int]]:
        """Heads and size of each cache."""
        raise NotImplementedError


class CarriedGpt2(CarriedCaches):
    """golow's GPT-2."""

    def __init__(self, model: Gpt2) -> None:
        super().__init__()
        self._step = Gpt2Step(model, batch=1, longest=1)
        self._step.caches = nn.ModuleList(JoinedCache() for _ in model.transformer.h)
        sizes = model.sizes
        self._shapes = [(sizes.heads, sizes.width // sizes.heads)] * 2 * sizes.layers

    def step(
        self, tokens: Tensor, before: Tensor, past: list[Tensor]
    ) -> tuple[Tensor, list[Tensor]]:
        """One pass over the layers."""
        caches = list(cast(Iterable[JoinedCache], self._step.caches))
        for cache, keys, values in zip(caches, past[::2], past[1::2], strict=True):
            cache.keys, cache.values = keys, values
        logits = self._step(tokens, before)
        return logits, [item for cache in caches for item in (cache.keys, cache.values)]

    def shapes(self) -> list[tuple[int, int]]:
        """Shapes of keys and values of all layers."""
        return self._shapes


class CarriedHuggingFace(CarriedCaches):
    """A causal model from transformers, with its dynamic cache. A layer with a sliding window keeps
    all tokens; its mask hides those outside the window."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model
        self._call = Call(model)
        first = self._cache([])
        self._call(torch.zeros(1, 1, dtype=torch.long), torch.arange(1), first)
        self._shapes = [
            (item.shape[1], item.shape[3])
            for layer in first.layers
            for item in (layer.keys, layer.values)
        ]

    def _cache(self, past: list[Tensor]) -> Any:
        from transformers import DynamicCache
        from transformers.cache_utils import DynamicLayer

        config: Any = self.model.config
        cache = DynamicCache(config=config)
        cache.layers = [DynamicLayer() for _ in cache.layers]
        for layer, keys, values in zip(cache.layers, past[::2], past[1::2], strict=False):
            layer.lazy_initialization(keys, values)
            layer.keys, layer.values = keys, values  # `update` would append them to nothing
        return cache

    def step(
        self, tokens: Tensor, before: Tensor, past: list[Tensor]
    ) -> tuple[Tensor, list[Tensor]]:
        """One pass over the layers."""
        cache = self._cache(past)
        positions = before + torch.arange(tokens.shape[1], device=tokens.device)
        logits = self._call(tokens, positions, cache)
        return logits, [item for layer in cache.layers for item in (layer.keys, layer.values)]

    def shapes(self) -> list[tuple[int, int]]:
        """Shapes of keys and values of all layers."""
        return self._shapes
