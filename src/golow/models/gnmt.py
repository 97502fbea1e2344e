"""GNMT: Wu et al., "Google's neural machine translation system", 2016, arXiv:1609.08144, in the
form that MLPerf trained, GNMTv2 (NVIDIA DeepLearningExamples, ``PyTorch/Translation/GNMT``).

Four layers of LSTM encode, the first in both directions; four decode, with the normalised additive
attention of Bahdanau et al. (arXiv:1409.0473) after the first. Layers beyond the second add their
input to their result. Encoder and decoder share one embedding. The state dict has GNMTv2's names.
It differs in two points: dropout is left out, and sentences are not packed, so that the encoder
also reads padding, which the attention then ignores.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn


class GnmtSizes(NamedTuple):
    """Sizes of a GNMT; the defaults are MLPerf's."""

    vocabulary: int = 32_320
    width: int = 1024
    layers: int = 4  # of the encoder, and as many of the decoder


class BahdanauAttention(nn.Module):
    """Additive attention, whose vector is normalised and scaled."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.linear_q = nn.Linear(width, width, bias=False)
        self.linear_k = nn.Linear(width, width, bias=False)
        self.linear_att = nn.Parameter(torch.empty(width))
        self.normalize_scalar = nn.Parameter(torch.empty(1))
        self.normalize_bias = nn.Parameter(torch.empty(width))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """GNMTv2's: the vector uniform within 1 / sqrt(width), which is its scale, and no bias."""
        bound = self.linear_att.numel() ** -0.5
        nn.init.uniform_(self.linear_att, -bound, bound)
        nn.init.constant_(self.normalize_scalar, bound)
        nn.init.zeros_(self.normalize_bias)

    def forward(self, query: Tensor, keys: Tensor, mask: Tensor) -> Tensor:
        """query: [batch, target, width]. keys: [batch, source, width]. mask: bool
        [batch, source]. Result: the context, [batch, target, width]."""
        sums = self.linear_q(query)[:, :, None] + self.linear_k(keys)[:, None]
        vector = self.linear_att / self.linear_att.norm() * self.normalize_scalar
        scores = torch.tanh(sums + self.normalize_bias).matmul(vector)
        # A finite number: a sentence of padding alone must not give NaN.
        shares = scores.masked_fill(~mask[:, None], -65504.0).softmax(dim=2)
        return shares.bmm(keys)


class RecurrentAttention(nn.Module):
    """An LSTM, and the attention of its results to the encoder's."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.rnn = nn.LSTM(width, width, batch_first=True)
        self.attn = BahdanauAttention(width)

    def forward(self, hidden: Tensor, keys: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
        """The LSTM's results and the contexts, both [batch, target, width]."""
        result, _ = self.rnn(hidden)
        return result, self.attn(result, keys, mask)


class GnmtEncoder(nn.Module):
    """Token ids [batch, source] -> [batch, source, width]."""

    def __init__(self, sizes: GnmtSizes, embedder: nn.Embedding) -> None:
        super().__init__()
        width = sizes.width
        self.rnn_layers = nn.ModuleList(
            [
                nn.LSTM(width, width, batch_first=True, bidirectional=True),
                nn.LSTM(2 * width, width, batch_first=True),
                *(nn.LSTM(width, width, batch_first=True) for _ in range(sizes.layers - 2)),
            ]
        )
        self.embedder = embedder

    def forward(self, tokens: Tensor) -> Tensor:
        """The results of the last layer."""
        hidden: Tensor = self.embedder(tokens)
        for position, layer in enumerate(self.rnn_layers):
            result: Tensor = layer(hidden)[0]
            hidden = result if position < 2 else hidden + result
        return hidden


class GnmtClassifier(nn.Module):
    """[batch, target, width] -> logits [batch, target, vocabulary]."""

    def __init__(self, sizes: GnmtSizes) -> None:
        super().__init__()
        self.classifier = nn.Linear(sizes.width, sizes.vocabulary)

    def forward(self, hidden: Tensor) -> Tensor:
        """The logits of each next token."""
        logits: Tensor = self.classifier(hidden)
        return logits


class GnmtDecoder(nn.Module):
    """Token ids [batch, target] and the encoder's results -> logits of each next token."""

    def __init__(self, sizes: GnmtSizes, embedder: nn.Embedding) -> None:
        super().__init__()
        width = sizes.width
        self.att_rnn = RecurrentAttention(width)
        self.rnn_layers = nn.ModuleList(
            nn.LSTM(2 * width, width, batch_first=True) for _ in range(sizes.layers - 1)
        )
        self.embedder = embedder
        self.classifier = GnmtClassifier(sizes)

    def forward(self, tokens: Tensor, keys: Tensor, mask: Tensor) -> Tensor:
        """[batch, target] -> [batch, target, vocabulary]."""
        hidden, context = self.att_rnn(self.embedder(tokens), keys, mask)
        for position, layer in enumerate(self.rnn_layers):
            result, _ = layer(torch.cat((hidden, context), dim=2))
            hidden = result if position < 1 else hidden + result
        logits: Tensor = self.classifier(hidden)
        return logits


class Gnmt(nn.Module):
    """Inputs: token ids int64 of source and target, and the source's mask bool (false: padding),
    each [batch, sequence]. Output: logits of each next token, [batch, sequence, vocabulary]."""

    def __init__(self, sizes: GnmtSizes) -> None:
        super().__init__()
        embedder = nn.Embedding(sizes.vocabulary, sizes.width, padding_idx=0)
        self.encoder = GnmtEncoder(sizes, embedder)
        self.decoder = GnmtDecoder(sizes, embedder)

    def forward(self, source: Tensor, mask: Tensor, target: Tensor) -> Tensor:
        """The logits of each next token of the target."""
        logits: Tensor = self.decoder(target, self.encoder(source), mask)
        return logits


def gnmt(*, classes: int = 32_320) -> Gnmt:
    """GNMTv2. classes: the size of the vocabulary, which both languages share."""
    return Gnmt(GnmtSizes(vocabulary=classes))
