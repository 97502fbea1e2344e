"""Recurrent layers as a loop over time: a product for all steps at once, then one a step."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch._decomp import decompositions


def lstm(
    input: Tensor,
    hx: Sequence[Tensor],
    params: Sequence[Tensor],
    has_biases: bool,
    num_layers: int,
    dropout: float,
    train: bool,
    bidirectional: bool,
    batch_first: bool,
) -> Any:
    """``lstm`` of sequences that are not packed, by PyTorch's own loop; its decomposition would
    call oneDNN through ATen on a CPU."""
    if dropout and train:
        return NotImplemented
    projected = hx[0].shape[2] != hx[1].shape[2]
    gathered = decompositions.gather_params(params, has_biases, projected)
    hidden = list(zip(hx[0], hx[1], strict=True))
    out, last = decompositions._rnn_helper(
        input, hidden, gathered, has_biases, num_layers, dropout, train, bidirectional,
        batch_first, decompositions.one_layer_lstm,
    )  # fmt: skip
    states = list(zip(*last, strict=True))
    return out, torch.stack(states[0], 0), torch.stack(states[1], 0)


DEFINITIONS = {"aten.lstm.input": lstm}
