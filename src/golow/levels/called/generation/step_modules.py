"""The step of a language model: the new tokens only, with a cache for those before."""

from __future__ import annotations

from torch import nn

from golow.models.gpt2 import Gpt2
from golow.models.gpt2_step import Gpt2Step


def step_of(module: nn.Module, batch: int, longest: int) -> nn.Module:
    """The step of a model that golow has one for; another module counts as a step itself: its
    forward takes tokens int64 [batch, count] and position, int64 without axes, and returns the
    logits of the next token, [batch, vocabulary]; its caches are buffers written in place."""
    if isinstance(module, Gpt2):
        return Gpt2Step(module, batch, longest)
    return module
