"""BERT: Devlin, Chang, Lee & Toutanova, "BERT: pre-training of deep bidirectional transformers for
language understanding", NAACL 2019, arXiv:1810.04805.

The encoder with its pooler, without a head for a task. The state dict has the names and shapes of
``BertModel`` in Hugging Face's transformers. Dropout is left out.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

from golow.models.attention import join_heads, split_heads


class BertSizes(NamedTuple):
    """Sizes of a BERT; the defaults are those of BERT-base, uncased."""

    vocabulary: int = 30_522
    positions: int = 512
    types: int = 2
    width: int = 768
    layers: int = 12
    heads: int = 12
    inner: int = 3072


class BertOutput(NamedTuple):
    """hidden: [batch, sequence, width]. pooled: [batch, width], of the first token."""

    hidden: Tensor
    pooled: Tensor


class BertEmbeddings(nn.Module):
    """Token ids and types [batch, sequence] -> [batch, sequence, width]."""

    def __init__(self, sizes: BertSizes) -> None:
        super().__init__()
        self.word_embeddings = nn.Embedding(sizes.vocabulary, sizes.width, padding_idx=0)
        self.position_embeddings = nn.Embedding(sizes.positions, sizes.width)
        self.token_type_embeddings = nn.Embedding(sizes.types, sizes.width)
        self.LayerNorm = nn.LayerNorm(sizes.width, eps=1e-12)

    def forward(self, tokens: Tensor, types: Tensor) -> Tensor:
        """The normalised sum of the embeddings of token, position and type."""
        positions = torch.arange(tokens.shape[1], device=tokens.device)
        embedded = self.word_embeddings(tokens) + self.token_type_embeddings(types)
        normalised: Tensor = self.LayerNorm(embedded + self.position_embeddings(positions))
        return normalised


class BertSelfAttention(nn.Module):
    """Attention of every token to all tokens that the mask allows."""

    def __init__(self, sizes: BertSizes) -> None:
        super().__init__()
        self.heads = sizes.heads
        self.query = nn.Linear(sizes.width, sizes.width)
        self.key = nn.Linear(sizes.width, sizes.width)
        self.value = nn.Linear(sizes.width, sizes.width)

    def forward(self, hidden: Tensor, allowed: Tensor) -> Tensor:
        """hidden: [batch, sequence, width]. allowed: bool [batch, 1, 1, sequence]."""
        query, key, value = (
            split_heads(layer(hidden), self.heads) for layer in (self.query, self.key, self.value)
        )
        return join_heads(
            functional.scaled_dot_product_attention(query, key, value, attn_mask=allowed)
        )


class BertResidual(nn.Module):
    """A linear layer, whose result is added to another tensor and normalised."""

    def __init__(self, inputs: int, sizes: BertSizes) -> None:
        super().__init__()
        self.dense = nn.Linear(inputs, sizes.width)
        self.LayerNorm = nn.LayerNorm(sizes.width, eps=1e-12)

    def forward(self, hidden: Tensor, residual: Tensor) -> Tensor:
        """hidden: [batch, sequence, inputs]; residual and result: [batch, sequence, width]."""
        normalised: Tensor = self.LayerNorm(self.dense(hidden) + residual)
        return normalised


class BertAttention(nn.Module):
    """Self-attention with its output layer."""

    def __init__(self, sizes: BertSizes) -> None:
        super().__init__()
        self.self = BertSelfAttention(sizes)
        self.output = BertResidual(sizes.width, sizes)

    def forward(self, hidden: Tensor, allowed: Tensor) -> Tensor:
        """hidden and result: [batch, sequence, width]."""
        attended: Tensor = self.output(self.self(hidden, allowed), hidden)
        return attended


class BertIntermediate(nn.Module):
    """The wide layer between attention and output, with its GELU."""

    def __init__(self, sizes: BertSizes) -> None:
        super().__init__()
        self.dense = nn.Linear(sizes.width, sizes.inner)

    def forward(self, hidden: Tensor) -> Tensor:
        """[batch, sequence, width] -> [batch, sequence, inner]."""
        return functional.gelu(self.dense(hidden))


class BertLayer(nn.Module):
    """Attention and two linear layers."""

    def __init__(self, sizes: BertSizes) -> None:
        super().__init__()
        self.attention = BertAttention(sizes)
        self.intermediate = BertIntermediate(sizes)
        self.output = BertResidual(sizes.inner, sizes)

    def forward(self, hidden: Tensor, allowed: Tensor) -> Tensor:
        """hidden and result: [batch, sequence, width]."""
        attended = self.attention(hidden, allowed)
        result: Tensor = self.output(self.intermediate(attended), attended)
        return result


class BertEncoder(nn.Module):
    """The layers, one after another."""

    def __init__(self, sizes: BertSizes) -> None:
        super().__init__()
        self.layer = nn.ModuleList(BertLayer(sizes) for _ in range(sizes.layers))

    def forward(self, hidden: Tensor, allowed: Tensor) -> Tensor:
        """hidden and result: [batch, sequence, width]."""
        for layer in self.layer:
            hidden = layer(hidden, allowed)
        return hidden


class BertPooler(nn.Module):
    """A linear layer with tanh on the first token."""

    def __init__(self, sizes: BertSizes) -> None:
        super().__init__()
        self.dense = nn.Linear(sizes.width, sizes.width)

    def forward(self, hidden: Tensor) -> Tensor:
        """[batch, sequence, width] -> [batch, width]."""
        return torch.tanh(self.dense(hidden[:, 0]))


class Bert(nn.Module):
    """Inputs: token ids int64, mask bool (true: a token, false: padding) and types int64, each
    [batch, sequence]."""

    def __init__(self, sizes: BertSizes) -> None:
        super().__init__()
        self.embeddings = BertEmbeddings(sizes)
        self.encoder = BertEncoder(sizes)
        self.pooler = BertPooler(sizes)

    def forward(self, tokens: Tensor, mask: Tensor, types: Tensor) -> BertOutput:
        """The hidden states of all tokens, and the pooled first one."""
        hidden = self.encoder(self.embeddings(tokens, types), mask[:, None, None, :])
        return BertOutput(hidden, self.pooler(hidden))


def bert_base(*, classes: int = 30_522) -> Bert:
    """BERT-base. classes: the size of the vocabulary."""
    return Bert(BertSizes(vocabulary=classes))
