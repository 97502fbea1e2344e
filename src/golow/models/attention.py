"""Layers that the transformers of the zoo share: heads, and the attention between them."""

from __future__ import annotations

from torch import Tensor


def split_heads(hidden: Tensor, heads: int) -> Tensor:
    """[batch, sequence, heads x size] -> [batch, heads, sequence, size]."""
    batch, sequence, width = hidden.shape
    return hidden.view(batch, sequence, heads, width // heads).transpose(1, 2)


def join_heads(hidden: Tensor) -> Tensor:
    """[batch, heads, sequence, size] -> [batch, sequence, heads x size]."""
    return hidden.transpose(1, 2).flatten(2)
