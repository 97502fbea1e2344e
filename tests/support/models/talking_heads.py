"""Attention whose heads linear layers mix, before and after softmax (Shazeer et al. 2020)."""

from __future__ import annotations

import torch
from torch import Tensor, nn

WIDTH = 8  # of a head


class TalkingHeads(nn.Module):
    """[B, L, heads * WIDTH] -> [B, 4], as CaiT (Touvron et al. 2021) computes it."""

    def __init__(self, heads: int = 4) -> None:
        super().__init__()
        self.heads, width = heads, heads * WIDTH
        self.inner, self.outer = nn.Linear(width, 3 * width), nn.Linear(width, 4)
        self.scores, self.weights = nn.Linear(heads, heads), nn.Linear(heads, heads)

    def forward(self, x: Tensor) -> Tensor:
        parts = self.inner(x).unflatten(-1, (3, self.heads, WIDTH)).permute(2, 0, 3, 1, 4)
        query, key, value = parts[0] * WIDTH**-0.5, parts[1], parts[2]
        weights = self._mixed(self.scores, query @ key.mT).softmax(-1)
        found = self._mixed(self.weights, weights) @ value
        return self.outer(found.transpose(1, 2).reshape(x.shape)).mean(1)

    @staticmethod
    def _mixed(layer: nn.Linear, scores: Tensor) -> Tensor:
        return torch.permute(layer(scores.permute(0, 2, 3, 1)), (0, 3, 1, 2))
