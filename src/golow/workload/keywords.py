"""Models that take their inputs by name: the tensors of a batch are given to them by keyword.

Every level then calls such a model as any other, with a tuple of tensors.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from torch import Tensor, nn

CACHE = "past_key_values"
"""Inputs ``past_key_values.LAYER.key`` and ``.value`` become one cache of transformers."""


class _ByKeyword(nn.Module):
    """A model whose inputs have names."""

    golow_keywords: tuple[str, ...]
    golow_settings: Mapping[str, int] = MappingProxyType({})
    golow_cache: str

    def forward(self, *batch: Tensor) -> Any:
        """The model's output for these inputs, in the order of their names."""
        given: dict[str, Any] = dict(zip(self.golow_keywords, batch, strict=True))
        if self.golow_cache:
            given = _with_cache(given, self.golow_cache)
        output = super().forward(**given, **self.golow_settings)
        # The cache is not a tensor, and holds what was given and what this pass adds to it.
        return output.logits if self.golow_cache else output


def accept_keywords(
    module: nn.Module, keywords: tuple[str, ...], settings: Mapping[str, int]
) -> None:
    """Let the module take a tuple of inputs with these names, in this order. settings: what else
    its forward pass is given. Its class becomes a subclass, so that layers and parameters keep
    their names."""
    own: type[nn.Module] = type(module)
    if settings:
        module.golow_settings = dict(settings)  # type: ignore[assignment]
    names = {  # of the class: the attributes of a view are those of the caller's module
        "__module__": own.__module__,
        "__qualname__": own.__qualname__,
        "golow_keywords": keywords,
        "golow_cache": _cache_name(own, keywords),
    }
    module.__class__ = type(own.__name__, (_ByKeyword, own), names)


def cache_keywords(layers: int) -> tuple[str, ...]:
    """The names of the keys and values of so many layers."""
    return tuple(f"{CACHE}.{layer}.{part}" for layer in range(layers) for part in ("key", "value"))


def _cache_name(own: type[nn.Module], keywords: tuple[str, ...]) -> str:
    """The name by which the class takes its cache; empty if none is given. Newer versions of
    transformers call it ``cache``."""
    if not any(name.startswith(f"{CACHE}.") for name in keywords):
        return ""
    return "cache" if "cache" in inspect.signature(own.forward).parameters else CACHE


def _with_cache(given: dict[str, Any], name: str) -> dict[str, Any]:
    names = [name for name in given if name.startswith(f"{CACHE}.")]
    from transformers.cache_utils import DynamicCache, DynamicLayer

    cache = DynamicCache()
    for layer in range(len(names) // 2):
        key, value = (given.pop(f"{CACHE}.{layer}.{part}") for part in ("key", "value"))
        # `update` would join them to an empty tensor, which is work that no generation has.
        kept = DynamicLayer()
        kept.keys, kept.values, kept.is_initialized = key, value, True
        kept.dtype, kept.device = key.dtype, key.device
        cache.layers.append(kept)
    return {**given, name: cache}
