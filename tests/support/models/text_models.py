"""Small models that generate texts whose tokens differ, as those of trained models do."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from golow.models.gpt2 import Gpt2, Gpt2Sizes
from golow.models.gpt2_step import Gpt2Step

VOCABULARY, LONGEST = 256, 96
SIZES = Gpt2Sizes(vocabulary=VOCABULARY, positions=LONGEST, width=32, layers=2, heads=4)


DECODER = {
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 97,
    "max_position_embeddings": 64,
    "initializer_range": 0.3,
}
"""Sizes in a configuration of transformers, for a Llama and models like it."""


def varied_gpt2() -> Gpt2:
    """A GPT-2 with a token a byte, whose blocks count for more than its embeddings."""
    torch.manual_seed(1)
    model = Gpt2(SIZES).eval()
    with torch.no_grad():
        for weight in model.parameters():
            if weight.dim() > 1:
                weight.normal_(0, 0.3)
    return model


class OwnStep(nn.Module):
    """A step module of a user: a cache for two texts, whose mean is added to each token."""

    table: Tensor

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(2)
        self.embedding = nn.Embedding(17, 8)
        self.head = nn.Linear(8, 17)
        self.register_buffer("table", torch.zeros(2, LONGEST, 8))

    def forward(self, tokens: Tensor, position: Tensor) -> Tensor:
        """The logits of the next token."""
        places = position + torch.arange(tokens.shape[1])
        self.table.index_copy_(1, places, self.embedding(tokens))
        seen = (torch.arange(self.table.shape[1]) <= places[-1]).to(self.table.dtype)
        mean = (self.table * seen[:, None]).sum(1) / seen.sum()
        logits: Tensor = self.head(torch.tanh(4 * mean + self.embedding(tokens[:, -1])))
        return logits


def varied_step() -> Gpt2Step:
    """A step module that is one already, for two texts."""
    return Gpt2Step(varied_gpt2(), 2, LONGEST)
