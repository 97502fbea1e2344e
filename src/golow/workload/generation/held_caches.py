"""Tensors of transformers' caches as buffers of a module."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Self

from torch import nn

HELD = ("keys", "values", "cumulative_length")


class HeldCaches(nn.Module):
    """Registers the tensors of cache layers as buffers. The layers follow them, for example in
    ``to`` and ``double``."""

    def __init__(self) -> None:
        super().__init__()
        self._held: dict[str, tuple[Any, str]] = {}

    def hold(self, layers: Iterable[Any], prefix: str = "") -> None:
        """Register ``PREFIXkeys_0`` and so on."""
        for place, layer in enumerate(layers):
            for name in HELD:
                if hasattr(layer, name):
                    self._held[f"{prefix}{name}_{place}"] = layer, name
                    self.register_buffer(f"{prefix}{name}_{place}", getattr(layer, name))

    def _apply(self, function: Any, recurse: bool = True) -> Self:
        super()._apply(function, recurse)  # type: ignore[no-untyped-call]
        for buffer, (layer, name) in self._held.items():
            setattr(layer, name, getattr(self, buffer))
        return self
