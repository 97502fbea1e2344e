"""Models that change their inputs in place, or assign buffers anew: each pass works on copies.

A level that ran such a model unchanged would find a changed batch in its second iteration, and a
graph would read the buffer of the first one forever. So the model is given a copy of such an input
and of such a buffer, and the buffer's new content is written where the old one was.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn


class _OnCopies(nn.Module):
    """A model that is given copies."""

    golow_changed: tuple[int, ...]
    golow_assigned: tuple[str, ...]

    def forward(self, *batch: Tensor) -> Any:
        """The model's output for these inputs, which stay unchanged."""
        given = (t.clone() if k in self.golow_changed else t for k, t in enumerate(batch))
        with _carried(self, self.golow_assigned):
            return super().forward(*given)


def work_on_copies(module: nn.Module, inputs: tuple[int, ...], buffers: tuple[str, ...]) -> None:
    """Let the module leave the inputs at these places unchanged, and write its assignments to these
    buffers into their memory. Its class becomes a subclass, so that layers and parameters keep
    their names."""
    if not inputs and not buffers:
        return
    module.golow_changed, module.golow_assigned = inputs, buffers  # type: ignore[assignment]
    own: type[nn.Module] = type(module)
    names = {"__module__": own.__module__, "__qualname__": own.__qualname__}
    module.__class__ = type(own.__name__, (_OnCopies, own), names)


@contextmanager
def _carried(module: nn.Module, names: tuple[str, ...]) -> Iterator[None]:
    places = [name.rpartition(".") for name in names]
    holders = [(module.get_submodule(path), name) for path, _, name in places]
    kept = [(layer, name, getattr(layer, name)) for layer, name in holders]
    for layer, name, buffer in kept:
        setattr(layer, name, buffer.clone())
    try:
        yield
        with torch.no_grad():
            for layer, name, buffer in kept:
                buffer.copy_(getattr(layer, name).detach())
    finally:
        for layer, name, buffer in kept:
            setattr(layer, name, buffer)
