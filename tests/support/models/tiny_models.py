"""The zoo's families for text and recommendations in sizes that build and run in milliseconds."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from golow.models.bert import Bert, BertSizes
from golow.models.dlrm import Dlrm, DlrmSizes
from golow.models.gnmt import Gnmt, GnmtSizes
from golow.models.gpt2 import Gpt2, Gpt2Sizes
from golow.models.llama import Llama, LlamaSizes
from golow.models.lstm import Lstm, LstmSizes
from golow.models.ncf import NcfSizes, NeuMF

VOCABULARY = 50
BATCH, SEQUENCE = 4, 6

BUILDERS: dict[str, Callable[[], nn.Module]] = {
    "bert": lambda: Bert(BertSizes(VOCABULARY, 16, 2, 16, 2, 2, 32)),
    "gpt2": lambda: Gpt2(Gpt2Sizes(VOCABULARY, 16, 16, 2, 2)),
    "llama": lambda: Llama(LlamaSizes(VOCABULARY, 16, 32, 48, 2, 4, 2)),
    "lstm": lambda: Lstm(LstmSizes(VOCABULARY, 16, 2)),
    "gnmt": lambda: Gnmt(GnmtSizes(VOCABULARY, 16, 4)),
    "ncf": lambda: NeuMF(NcfSizes(20, 30, 4, (16, 8, 4))),
    "dlrm": lambda: Dlrm(DlrmSizes((7, 40, 3), (13, 16, 8), (16, 1))),
}
LOSSES = {
    "bert": "mse_of_outputs",
    "ncf": "binary_cross_entropy_with_logits",
    "dlrm": "binary_cross_entropy_with_logits",
}


def built(family: str) -> nn.Module:
    """The tiny model of that family, with weights from seed 0."""
    torch.manual_seed(0)
    return BUILDERS[family]()


def loss_of(family: str) -> str:
    """The loss that it trains with."""
    return LOSSES.get(family, "token_cross_entropy")


def inputs_of(family: str) -> tuple[Tensor, ...]:
    """A batch of inputs: token ids with several dtypes beside them."""
    generator = torch.Generator().manual_seed(1)

    def ids(below: int, *shape: int) -> Tensor:
        return torch.randint(below, shape or (BATCH, SEQUENCE), generator=generator)

    mask = torch.arange(SEQUENCE) < torch.tensor([[6], [3], [5], [4]])
    match family:
        case "bert":
            return ids(VOCABULARY), mask, ids(2)
        case "gnmt":
            return ids(VOCABULARY), mask, ids(VOCABULARY)
        case "ncf":
            return ids(20, BATCH), ids(30, BATCH)
        case "dlrm":
            columns = [ids(rows, BATCH) for rows in (7, 40, 3)]
            return torch.randn(BATCH, 13, generator=generator), torch.stack(columns, dim=1)
        case _:
            return (ids(VOCABULARY),)
