"""Attention as networks write it, and what only looks like it."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from golow.lower.recognise.whole_attention import Kernels

ANY = Kernels(width=128)


HEADS, LENGTH, WIDTH = 4, 8, 8
HIDING = {"a little": -1e3, "by ten thousand": -1e4, "largely": -1e9, "most": -3.4e38}


class Written(nn.Module):
    """Attention as many networks write it, [B, L, HEADS * WIDTH] -> the same.

    scale: of the query, of the key, of the scores, or none. hidden: what is left after hiding
    scores: those of the past, of some keys, or of both; "kept" chooses the scores that are kept.
    added: numbers for each head, row and key; for each image and key; for both in turn. flat:
    products of [B * HEADS, ...], as `torch.bmm` takes them.
    """

    def __init__(
        self, scale: str = "scores", hidden: str = "", added: str = "", flat: bool = False
    ) -> None:
        super().__init__()
        self.scale, self.hidden, self.added, self.flat = scale, hidden, added, flat
        self.inner = nn.Linear(HEADS * WIDTH, 3 * HEADS * WIDTH)
        self.outer = nn.Linear(HEADS * WIDTH, 16)
        self.distances = nn.Parameter(torch.randn(HEADS, LENGTH, LENGTH))
        self.register_buffer("past", torch.ones(1, 1, LENGTH, LENGTH).tril())

    def forward(self, x: Tensor) -> Tensor:
        images, length, _ = x.shape
        heads = self.inner(x).view(images, length, 3, HEADS, WIDTH).permute(2, 0, 3, 1, 4)
        query, key, value = (part.flatten(0, 1) if self.flat else part for part in heads)
        if self.scale in ("query", "key"):
            query = query * 0.3 if self.scale == "query" else query
            key = key * 0.3 if self.scale == "key" else key
        scores = query @ key.transpose(-2, -1)
        if self.scale == "scores":
            scores = scores / math.sqrt(WIDTH)
        scores = self._hidden(self._added(scores, x), x)
        found = scores.softmax(-1) @ value
        found = found.view(images, HEADS, length, WIDTH)
        return self.outer(found.transpose(1, 2).reshape(images, length, -1)).mean(1)

    def _added(self, scores: Tensor, x: Tensor) -> Tensor:
        own = self.distances.repeat(len(x), 1, 1) if self.flat else self.distances
        if self.added in ("distances", "both"):
            scores = scores + own
        if self.added in ("images", "both"):
            numbers = x[:, None, None, :, 0]
            if self.flat:
                whole = scores.view(len(x), HEADS, *scores.shape[1:])
                scores = (numbers + whole).flatten(0, 1)
            else:
                scores = numbers + scores
        return scores

    def _hidden(self, scores: Tensor, x: Tensor) -> Tensor:
        past = self.past[0] if self.flat else self.past
        if self.hidden in ("past", "both"):
            scores = scores.masked_fill(past == 0, -math.inf)
        if self.hidden == "kept":
            scores = torch.where(past.bool(), scores, -math.inf)
        if self.hidden in ("keys", "both") and not self.flat:
            keys = x[:, None, None, :, 1] > 1.5
            scores = scores.masked_fill(keys.roll(1, -1) & (torch.arange(LENGTH) > 0), -math.inf)
        return scores


class Other(nn.Module):
    """What is no attention that these kernels compute, or has readers of its parts; or has scores
    that large numbers hide."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.kind = kind
        self.weight = nn.Parameter(torch.ones(1, 4, 1, 1))

    def forward(self, x: Tensor) -> Tensor:
        images, length, _ = x.shape
        width = {"wide": 136, "narrow": 12}.get(self.kind, 8)
        heads = x.repeat(1, 1, width)[..., : 4 * width].reshape(images, length, 4, width)
        heads = heads.transpose(1, 2) * self.weight
        scores = heads @ heads.transpose(-2, -1)
        if self.kind in HIDING:
            hidden = torch.ones(length, length).triu(1).bool()
            hidden = hidden | (torch.arange(length) == 2)[:, None]  # a row sees nothing
            scores = scores.masked_fill(hidden, HIDING[self.kind])
        if self.kind == "scores too":
            return (scores.softmax(-1) @ heads).mean((1, 2)) + scores.mean()
        weights = scores.softmax(-2 if self.kind == "columns" else -1)
        if self.kind == "weights too":
            return (weights @ heads).mean((1, 2)) + weights.mean()
        if self.kind == "logarithm":
            weights = scores.log_softmax(-1)
        if self.kind == "multiplied":
            weights = weights * self.weight
        if self.kind == "second":
            return (heads.transpose(-2, -1) @ weights).mean((1, 3))
        return (weights @ heads).mean((1, 2))
