"""A small step of a language model in the manner of Llama: RMS norms, rotary positions, grouped
heads, SwiGLU, and caches in buffers."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional

from support.models.cached_steps import Sizes

Turn = Literal["halves", "backwards", "none"]
SMALL = Sizes(batch=1, groups=2, sharing=2, width=32, longest=80, layers=2, vocabulary=40)


class Rotating(nn.Module):
    """One layer. turn: how query and key are turned by their position."""

    keys: Tensor
    values: Tensor

    def __init__(self, sizes: Sizes, turn: Turn) -> None:
        super().__init__()
        self.sizes, self.turn = sizes, turn
        whole, rest = sizes.groups * sizes.sharing * sizes.width, sizes.groups * sizes.width
        self.before, self.after = nn.RMSNorm(whole, 1e-5), nn.RMSNorm(whole, 1e-5)
        for norm in (self.before, self.after):
            nn.init.uniform_(norm.weight, 0.5, 1.5)
        self.query = nn.Linear(whole, whole, bias=False)
        self.key, self.value = (nn.Linear(whole, rest, bias=False) for _ in range(2))
        self.join = nn.Linear(whole, whole, bias=False)
        self.gate, self.up = (nn.Linear(whole, 2 * whole, bias=False) for _ in range(2))
        self.down = nn.Linear(2 * whole, whole, bias=False)
        for name in ("keys", "values"):
            shape = (sizes.batch, sizes.groups, sizes.longest, sizes.width)
            self.register_buffer(name, torch.zeros(shape))

    def forward(self, hidden: Tensor, rows: Tensor, cosine: Tensor, sine: Tensor) -> Tensor:
        """hidden and result: [batch, count, whole]."""
        x = self.before(hidden)
        layers = (self.query, self.key, self.value)
        query, key, value = (
            layer(x).unflatten(2, (-1, self.sizes.width)).transpose(1, 2) for layer in layers
        )
        if self.turn != "none":
            query, key = (self._turned(part, cosine, sine) for part in (query, key))
        self.keys.index_copy_(2, rows, key)
        self.values.index_copy_(2, rows, value)
        seen = torch.arange(self.sizes.longest, device=rows.device) <= rows[:, None]
        attended = functional.scaled_dot_product_attention(
            query, self.keys, self.values, attn_mask=seen, enable_gqa=self.sizes.sharing > 1
        )
        hidden = hidden + self.join(attended.transpose(1, 2).flatten(2))
        x = self.after(hidden)
        further: Tensor = self.down(functional.silu(self.gate(x)) * self.up(x))
        return hidden + further

    def _turned(self, x: Tensor, cosine: Tensor, sine: Tensor) -> Tensor:
        first, second = x.chunk(2, -1)
        halves = (-second, first) if self.turn == "halves" else (second, -first)
        return x * cosine + torch.cat(halves, -1) * sine


class RotatingStep(nn.Module):
    """Tokens int64 [batch, count] and position -> logits [batch, vocabulary]."""

    frequencies: Tensor

    def __init__(self, sizes: Sizes = SMALL, turn: Turn = "halves") -> None:
        super().__init__()
        whole = sizes.groups * sizes.sharing * sizes.width
        self.words = nn.Embedding(sizes.vocabulary, whole)
        self.layers = nn.ModuleList(Rotating(sizes, turn) for _ in range(sizes.layers))
        self.norm = nn.RMSNorm(whole, 1e-5)
        self.head = nn.Linear(whole, sizes.vocabulary, bias=False)
        powers = torch.arange(0, sizes.width, 2) / sizes.width
        self.register_buffer("frequencies", 100.0**-powers, persistent=True)

    def forward(self, tokens: Tensor, position: Tensor) -> Tensor:
        """The logits of the next token."""
        rows = position + torch.arange(tokens.shape[1], device=tokens.device)
        angles = rows[:, None] * self.frequencies
        angles = torch.cat([angles, angles], -1)
        hidden = self.words(tokens)
        for layer in self.layers:
            hidden = layer(hidden, rows, angles.cos(), angles.sin())
        logits: Tensor = self.head(self.norm(hidden)[:, -1])
        return logits
