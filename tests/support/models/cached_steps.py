"""Small steps of language models with a cache as state, in the forms that models write them in."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Literal, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

Write = Literal["copy", "put"]
Mask = Literal["plain", "turned", "wide", "both", "window"]
WRITES: tuple[Write, ...] = ("copy", "put")
MASKS: tuple[Mask, ...] = ("plain", "turned", "wide", "both", "window")

WINDOW = 6


class Sizes(NamedTuple):
    """Of a step: heads share keys and values in groups."""

    batch: int = 2
    groups: int = 2
    sharing: int = 2
    width: int = 8
    longest: int = 24
    layers: int = 2
    vocabulary: int = 31


class Layer(nn.Module):
    """Attention over its cache. late: by how many positions the mask is wrong. Written by copies,
    texts may have positions of their own."""

    keys: Tensor
    values: Tensor

    def __init__(self, sizes: Sizes, write: Write, mask: Mask, late: int) -> None:
        super().__init__()
        self.sizes, self.write, self.mask, self.late = sizes, write, mask, late
        self.whole = sizes.groups * sizes.sharing * sizes.width
        self.project = nn.Linear(self.whole, self.whole + 2 * sizes.groups * sizes.width)
        self.join = nn.Linear(self.whole, self.whole)
        for name in ("keys", "values"):
            shape = (sizes.batch, sizes.groups, sizes.longest, sizes.width)
            self.register_buffer(name, torch.zeros(shape))

    def forward(self, hidden: Tensor, position: Tensor) -> Tensor:
        """hidden and result: [batch, count, whole]."""
        sizes, rest = self.sizes, self.sizes.groups * self.sizes.width
        parts = self.project(hidden).split([self.whole, rest, rest], dim=2)
        query, key, value = (part.unflatten(2, (-1, sizes.width)).transpose(1, 2) for part in parts)
        rows = position + torch.arange(hidden.shape[1])
        for cache, new in ((self.keys, key), (self.values, value)):
            if self.write == "copy" and rows.dim() > 1:
                cache.scatter_(2, rows[:, None, :, None].expand_as(new), new)
            elif self.write == "copy":
                cache.index_copy_(2, rows, new)
            else:
                cache[:, :, rows] = new
        attended = functional.scaled_dot_product_attention(
            query, self.keys, self.values, attn_mask=self.seen(rows), enable_gqa=sizes.sharing > 1
        )
        joined: Tensor = self.join(attended.transpose(1, 2).flatten(2))
        return hidden + joined

    def seen(self, rows: Tensor) -> Tensor:
        """[count, longest], or with axes in front; rows: [count] or [batch, count]."""
        keys = torch.arange(self.sizes.longest) - self.late
        if self.mask == "turned":
            return rows.unsqueeze(1) >= keys
        if self.mask == "wide":
            return (keys[None, None, None] < rows[None, None, :, None] + 1).expand(
                self.sizes.batch, 1, -1, -1
            )
        rows = rows if rows.dim() == 1 else rows[:, None]
        if self.mask == "window":
            return (keys <= rows[..., None]) & (keys > rows[..., None] - WINDOW)
        if self.mask == "both":  # of which one half hides nothing
            return (keys <= rows[:, None]) & (keys > rows[:, None] - self.sizes.longest - 1)
        return keys <= rows[..., None]


class CachedStep(nn.Module):
    """Tokens int64 [batch, count] and position, without axes or [batch, 1] -> logits [batch,
    vocabulary]."""

    def __init__(
        self, sizes: Sizes, write: Write = "copy", mask: Mask = "plain", late: int = 0
    ) -> None:
        super().__init__()
        self.sizes = sizes
        whole = sizes.groups * sizes.sharing * sizes.width
        self.words = nn.Embedding(sizes.vocabulary, whole)
        self.places = nn.Embedding(sizes.longest, whole)
        self.layers = nn.ModuleList(Layer(sizes, write, mask, late) for _ in range(sizes.layers))
        self.head = nn.Linear(whole, sizes.vocabulary)

    def forward(self, tokens: Tensor, position: Tensor) -> Tensor:
        """The logits of the next token."""
        places = position + torch.arange(tokens.shape[1])
        hidden = self.words(tokens) + self.places(places)
        for layer in self.layers:
            hidden = layer(hidden, position)
        logits: Tensor = self.head(functional.layer_norm(hidden[:, -1], hidden.shape[-1:]))
        return logits


def whole_text(step: nn.Module, text: Tensor) -> Tensor:
    """The logits after a text that is read at once, in float64; the step stays as it is."""
    double = copy.deepcopy(step).double()
    with torch.no_grad():
        logits: Tensor = double(text, torch.tensor(0))
    return logits


class Held:
    """A cache that is no module, as transformers' ``StaticLayer``: it counts its tokens."""

    def __init__(self, sizes: Sizes) -> None:
        shape = (sizes.batch, sizes.groups, sizes.longest, sizes.width)
        self.tensors = [torch.zeros(shape), torch.zeros(shape)]
        self.length = torch.tensor(0)

    def update(self, *new: Tensor) -> Tensor:
        """Write keys and values, and return the places of their rows."""
        rows = torch.arange(new[0].shape[2]) + self.length
        self.length.add_(new[0].shape[2])
        for cache, item in zip(self.tensors, new, strict=True):
            cache.index_copy_(2, rows, item)
        return rows


class HeldStep(nn.Module):
    """A step whose caches are buffers of the module that it reaches through an object. persistent:
    whether they are in the state dict."""

    def __init__(self, sizes: Sizes, persistent: bool = True) -> None:
        super().__init__()
        whole = sizes.groups * sizes.width
        self.words = nn.Embedding(sizes.vocabulary, whole)
        self.head = nn.Linear(whole, sizes.vocabulary)
        self.sizes, self.held = sizes, Held(sizes)
        for name, tensor in self._tensors().items():
            self.register_buffer(name, tensor, persistent=persistent)

    def forward(self, tokens: Tensor, position: Tensor) -> Tensor:
        """The logits of the next token."""
        self.held.length.copy_(position)
        words = self.words(tokens).unflatten(2, (-1, self.sizes.width)).transpose(1, 2)
        rows = self.held.update(words, 2 * words)
        seen = torch.arange(self.sizes.longest) <= rows[:, None]
        attended = functional.scaled_dot_product_attention(
            words, *self.held.tensors, attn_mask=seen
        )
        logits: Tensor = self.head(attended.transpose(1, 2).flatten(2)[:, -1])
        return logits

    def _tensors(self) -> dict[str, Tensor]:
        keys, values = self.held.tensors
        return {"keys": keys, "values": values, "length": self.held.length}

    def _apply(self, function: Callable[[Tensor], Tensor], recurse: bool = True) -> HeldStep:
        super()._apply(function, recurse)  # type: ignore[no-untyped-call]
        self.held.tensors = [self.get_buffer("keys"), self.get_buffer("values")]
        self.held.length = self.get_buffer("length")
        return self
