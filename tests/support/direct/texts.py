"""Text networks of a few thousand weights, and examples of their inputs."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from golow.models.bert import Bert, BertSizes
from golow.models.gpt2 import Gpt2, Gpt2Sizes

WORDS, POSITIONS = 50, 64


def tokens(rows: int, length: int, seed: int = 0) -> Tensor:
    """Ids of words; 0 is one of them."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(0, WORDS, (rows, length), generator=generator)


def causal() -> nn.Module:
    """A GPT-2 of one block."""
    torch.manual_seed(0)
    return Gpt2(Gpt2Sizes(WORDS, POSITIONS, width=16, layers=1, heads=2)).eval()


def bidirectional() -> Bert:
    """A BERT of one layer."""
    torch.manual_seed(0)
    sizes = BertSizes(WORDS, POSITIONS, width=16, layers=1, heads=2, inner=24)
    return Bert(sizes).eval()


def masked(rows: int, length: int, seed: int = 0) -> dict[str, Tensor]:
    """Inputs of `bidirectional`, with a mask that hides the last words of every second text."""
    mask = torch.ones(rows, length, dtype=torch.bool)
    mask[1::2, length // 2 + 1 :] = False
    words = tokens(rows, length, seed)
    return {"tokens": words, "mask": mask, "types": words % 2}
