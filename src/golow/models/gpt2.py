"""GPT-2: Radford, Wu, Child, Luan, Amodei & Sutskever, "Language models are unsupervised multitask
learners", 2019.

The state dict has the names of ``GPT2LMHeadModel`` in Hugging Face's transformers. Its linear
layers are ``nn.Linear``, so their weights are the transposed ones of that model and of OpenAI's
checkpoints, as in Karpathy's nanoGPT. Dropout is left out.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

from golow.models.attention import join_heads, split_heads


class Gpt2Sizes(NamedTuple):
    """Sizes of a GPT-2; the defaults are those of the smallest one."""

    vocabulary: int = 50_257
    positions: int = 1024
    width: int = 768
    layers: int = 12
    heads: int = 12


class Gpt2Attention(nn.Module):
    """Attention of every token to itself and the tokens before it."""

    def __init__(self, sizes: Gpt2Sizes) -> None:
        super().__init__()
        self.heads = sizes.heads
        self.c_attn = nn.Linear(sizes.width, 3 * sizes.width)
        self.c_proj = nn.Linear(sizes.width, sizes.width)

    def forward(self, hidden: Tensor) -> Tensor:
        """hidden and result: [batch, sequence, width]."""
        query, key, value = self.project(hidden)
        return self.join(functional.scaled_dot_product_attention(query, key, value, is_causal=True))

    def project(self, hidden: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Query, key and value, [batch, heads, sequence, size] each."""
        query, key, value = (
            split_heads(part, self.heads) for part in self.c_attn(hidden).chunk(3, dim=2)
        )
        return query, key, value

    def join(self, attended: Tensor) -> Tensor:
        """[batch, heads, sequence, size] -> [batch, sequence, width]."""
        projected: Tensor = self.c_proj(join_heads(attended))
        return projected


class Gpt2Mlp(nn.Module):
    """Two linear layers with the tanh form of GELU between them."""

    def __init__(self, sizes: Gpt2Sizes) -> None:
        super().__init__()
        self.c_fc = nn.Linear(sizes.width, 4 * sizes.width)
        self.c_proj = nn.Linear(4 * sizes.width, sizes.width)

    def forward(self, hidden: Tensor) -> Tensor:
        """hidden and result: [batch, sequence, width]."""
        projected: Tensor = self.c_proj(functional.gelu(self.c_fc(hidden), approximate="tanh"))
        return projected


class Gpt2Block(nn.Module):
    """Attention and two linear layers, each added to what it was computed from."""

    def __init__(self, sizes: Gpt2Sizes) -> None:
        super().__init__()
        self.ln_1 = nn.LayerNorm(sizes.width)
        self.attn = Gpt2Attention(sizes)
        self.ln_2 = nn.LayerNorm(sizes.width)
        self.mlp = Gpt2Mlp(sizes)

    def forward(self, hidden: Tensor) -> Tensor:
        """hidden and result: [batch, sequence, width]."""
        hidden = hidden + self.attn(self.ln_1(hidden))
        result: Tensor = hidden + self.mlp(self.ln_2(hidden))
        return result


class Gpt2Transformer(nn.Module):
    """Embeddings, blocks and the last norm."""

    def __init__(self, sizes: Gpt2Sizes) -> None:
        super().__init__()
        self.wte = nn.Embedding(sizes.vocabulary, sizes.width)
        self.wpe = nn.Embedding(sizes.positions, sizes.width)
        self.h = nn.ModuleList(Gpt2Block(sizes) for _ in range(sizes.layers))
        self.ln_f = nn.LayerNorm(sizes.width)

    def forward(self, tokens: Tensor) -> Tensor:
        """[batch, sequence] -> [batch, sequence, width]."""
        positions = torch.arange(tokens.shape[1], device=tokens.device)
        hidden = self.wte(tokens) + self.wpe(positions)
        for block in self.h:
            hidden = block(hidden)
        normalised: Tensor = self.ln_f(hidden)
        return normalised


class Gpt2(nn.Module):
    """Input: token ids int64 [batch, sequence]. Output: logits of each next token,
    [batch, sequence, vocabulary]. The head shares the weights of the token embedding."""

    def __init__(self, sizes: Gpt2Sizes) -> None:
        super().__init__()
        self.sizes = sizes
        self.transformer = Gpt2Transformer(sizes)
        self.lm_head = nn.Linear(sizes.width, sizes.vocabulary, bias=False)
        self.lm_head.weight = self.transformer.wte.weight

    def forward(self, tokens: Tensor) -> Tensor:
        """The logits of each next token."""
        logits: Tensor = self.lm_head(self.transformer(tokens))
        return logits


def gpt2_small(*, classes: int = 50_257) -> Gpt2:
    """The GPT-2 of 124 million parameters. classes: the size of the vocabulary."""
    return Gpt2(Gpt2Sizes(vocabulary=classes))
