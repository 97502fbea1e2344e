"""The medium LSTM language model: Zaremba, Sutskever & Vinyals, "Recurrent neural network
regularization", 2014, arXiv:1409.2329: two layers of 650 units over 10,000 words.

The state dict has the names of PyTorch's example (pytorch/examples, ``word_language_model``).
Dropout is left out, and every sequence starts from a state of zeros.
"""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor, nn


class LstmSizes(NamedTuple):
    """Sizes of the model; the defaults are the medium model's for Penn Treebank."""

    vocabulary: int = 10_000
    width: int = 650
    layers: int = 2


class Lstm(nn.Module):
    """Input: token ids int64 [batch, sequence]. Output: logits of each next token,
    [batch, sequence, vocabulary]."""

    def __init__(self, sizes: LstmSizes) -> None:
        super().__init__()
        self.encoder = nn.Embedding(sizes.vocabulary, sizes.width)
        self.rnn = nn.LSTM(sizes.width, sizes.width, sizes.layers, batch_first=True)
        self.decoder = nn.Linear(sizes.width, sizes.vocabulary)

    def forward(self, tokens: Tensor) -> Tensor:
        """The logits of each next token."""
        hidden, _ = self.rnn(self.encoder(tokens))
        logits: Tensor = self.decoder(hidden)
        return logits


def lstm(*, classes: int = 10_000) -> Lstm:
    """The medium model. classes: the size of the vocabulary."""
    return Lstm(LstmSizes(vocabulary=classes))
