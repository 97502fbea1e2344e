"""4-bit numbers packed into 32-bit words, eight in each, as in the layouts of GPTQ and AWQ, and
golow's layer for them."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from golow.workload.quantization.int4_weights import in_pairs

EIGHT = range(8)
MIDDLE = 8
"""The number that represents zero in a layer without zero points."""


def numbers_of(words: Tensor, order: Sequence[int] = EIGHT) -> Tensor:
    """Unpack words, int32 [rows, words] -> uint8 [rows, 8 words].

    order: position among eight of each number of a word, starting from the lowest four bits.
    """
    parts = torch.stack([(words >> 4 * place) & 15 for place in EIGHT], dim=2).to(torch.uint8)
    back = sorted(EIGHT, key=lambda place: order[place])
    return parts[:, :, back].flatten(1)


def int4_tensors(
    numbers: Tensor, scales: Tensor, zeros: Tensor | None, order: Tensor | None = None
) -> dict[str, Tensor]:
    """Return the tensors of golow's layer. numbers: uint8 [outputs, inputs]; scales: [groups,
    outputs]; zeros: the same shape, None if all are 8; order: [inputs], None if groups consist of
    neighbours."""
    outputs, groups = numbers.shape[0], scales.shape[0]
    placed = numbers if order is None else numbers[:, order]
    found = {
        "weight": in_pairs(placed.reshape(outputs, groups, -1)),
        "output_scale": scales.T[:, :, None].float().contiguous(),
    }
    if zeros is not None:
        found["zero"] = zeros.T[:, :, None].float().contiguous()
    if order is not None:
        found["order"] = order
    return found
