"""Heads of language models whose rows are long and odd."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

VOCABULARY = 1027  # pitches: 1028 in float32, 1032 in halves


class Language(nn.Module):
    """An embedding, a layer and a head, as small as they can be with a long odd vocabulary.
    tied: the head has the embedding's weight; capped: something else reads the scores."""

    def __init__(self, tied: bool = True, bias: bool = False, capped: bool = False) -> None:
        super().__init__()
        self.table, self.layer = nn.Embedding(VOCABULARY, 8), nn.Linear(8, 8)
        self.head = nn.Linear(8, VOCABULARY, bias=bias)
        if tied:
            self.head.weight = self.table.weight
        self.capped = capped

    def forward(self, tokens: Tensor) -> Tensor:
        scores: Tensor = self.head(self.layer(self.table(tokens)).tanh())
        return scores.tanh() if self.capped else scores


TOKENS = torch.tensor([[5, 9, 5], [7, 5, 0]])  # one of them three times
HEADS: dict[str, Callable[[], nn.Module]] = {
    "tied": Language,
    "its own": lambda: Language(tied=False),
    "with a bias": lambda: Language(tied=False, bias=True),
    "tied with a bias": lambda: Language(bias=True),
}
