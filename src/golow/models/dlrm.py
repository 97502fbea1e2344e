"""DLRM: Naumov et al., "Deep learning recommendation model for personalization and recommendation
systems", 2019, arXiv:1906.00091.

Linear layers over 13 numbers, an embedding for each of 26 categories, the products of all pairs of
these 27 vectors, and linear layers over them. The layers are those that the paper's code
(facebookresearch/dlrm) uses for Criteo's Kaggle data set, and the state dict has its names.
``dlrm_small`` limits each table to 100,000 rows, as that code's ``--max-ind-range`` does: the
whole tables have 540 million numbers.
"""

from __future__ import annotations

from itertools import pairwise
from typing import NamedTuple

import torch
from torch import Tensor, nn

from golow.models.criteo import DENSE, capped


class DlrmSizes(NamedTuple):
    """Sizes of a DLRM; the defaults are dlrm_small's.

    bottom: widths of the linear layers over the numbers, the numbers first and the embeddings'
    width last. top: widths of those over the products, without the products.
    """

    rows: tuple[int, ...] = capped()
    bottom: tuple[int, ...] = (DENSE, 512, 256, 64, 16)
    top: tuple[int, ...] = (512, 256, 1)


class Dlrm(nn.Module):
    """Inputs: numbers float32 [batch, 13] and categories int64 [batch, 26]. Output: the logit of a
    click, [batch, 1]."""

    first: Tensor
    second: Tensor

    def __init__(self, sizes: DlrmSizes) -> None:
        super().__init__()
        width, vectors = sizes.bottom[-1], len(sizes.rows) + 1
        self.emb_l = nn.ModuleList(nn.Embedding(rows, width) for rows in sizes.rows)
        self.bot_l = _layers(sizes.bottom, last=nn.ReLU())
        # On the CPU even where modules are built without numbers: no state dict holds these.
        pairs = torch.tril_indices(vectors, vectors, offset=-1, device="cpu")
        self.register_buffer("first", pairs[0].clone(), persistent=False)
        self.register_buffer("second", pairs[1].clone(), persistent=False)
        self.top_l = _layers((width + pairs.shape[1], *sizes.top), last=None)

    def forward(self, numbers: Tensor, categories: Tensor) -> Tensor:
        """The logits, [batch, 1]."""
        dense = self.bot_l(numbers)
        rows = [table(categories[:, index]) for index, table in enumerate(self.emb_l)]
        vectors = torch.stack([dense, *rows], dim=1)
        products = vectors.bmm(vectors.transpose(1, 2))[:, self.first, self.second]
        logits: Tensor = self.top_l(torch.cat((dense, products), dim=1))
        return logits


def _layers(widths: tuple[int, ...], last: nn.Module | None) -> nn.Sequential:
    """Linear layers with a ReLU after each; ``last`` comes after the last one, if anything."""
    layers: list[nn.Module] = []
    for before, after in pairwise(widths):
        layers += [nn.Linear(before, after), nn.ReLU()]
    return nn.Sequential(*layers[:-1], *([] if last is None else [last]))


def dlrm_small() -> Dlrm:
    """The DLRM for Criteo's Kaggle data set, with tables of at most 100,000 rows."""
    return Dlrm(DlrmSizes())
