"""NeuMF: He, Liao, Zhang, Nie, Hu & Chua, "Neural collaborative filtering", WWW 2017,
arXiv:1708.05031, in MLPerf's sizes for MovieLens 20M.

A product of embeddings (matrix factorisation) and linear layers over other embeddings, side by
side. The state dict has the names of NVIDIA's reference (DeepLearningExamples,
``PyTorch/Recommendation/NCF``). Dropout is left out.
"""

from __future__ import annotations

from itertools import pairwise
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional


class NcfSizes(NamedTuple):
    """Sizes of a NeuMF; the defaults are MLPerf's."""

    users: int = 138_493
    items: int = 26_744
    factors: int = 64
    layers: tuple[int, ...] = (256, 256, 128, 64)  # the first is the input, half of it each


class NeuMF(nn.Module):
    """Inputs: ids of user and item, int64 [batch]. Output: the logit that they belong together,
    [batch, 1]."""

    def __init__(self, sizes: NcfSizes) -> None:
        super().__init__()
        self.mf_user_embed = nn.Embedding(sizes.users, sizes.factors)
        self.mf_item_embed = nn.Embedding(sizes.items, sizes.factors)
        self.mlp_user_embed = nn.Embedding(sizes.users, sizes.layers[0] // 2)
        self.mlp_item_embed = nn.Embedding(sizes.items, sizes.layers[0] // 2)
        self.mlp = nn.ModuleList(nn.Linear(*widths) for widths in pairwise(sizes.layers))
        self.final = nn.Linear(sizes.layers[-1] + sizes.factors, 1)

    def forward(self, user: Tensor, item: Tensor) -> Tensor:
        """The logits, [batch, 1]."""
        product = self.mf_user_embed(user) * self.mf_item_embed(item)
        hidden = torch.cat((self.mlp_user_embed(user), self.mlp_item_embed(item)), dim=1)
        for layer in self.mlp:
            hidden = functional.relu(layer(hidden))
        logits: Tensor = self.final(torch.cat((product, hidden), dim=1))
        return logits


def ncf() -> NeuMF:
    """NeuMF in MLPerf's sizes."""
    return NeuMF(NcfSizes())
