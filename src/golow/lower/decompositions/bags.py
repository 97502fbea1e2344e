"""Sums, means and largest elements of bags of embeddings, and their gradients.

Bag b has the indices from offsets[b] to the next offset.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

aten = torch.ops.aten

SUM, MEAN, MAX = range(3)  # ATen's numbers


def _bags(indices: Tensor, offsets: Tensor, last: bool) -> tuple[Tensor, int]:
    """The bag of each index, and how many bags there are. last: the offsets end with the number of
    indices, which begins no bag."""
    count = offsets.shape[0] - last
    starts = aten.slice.Tensor(offsets, 0, 0, count)
    places = torch.arange(indices.shape[0]).unsqueeze(1)
    return (starts.unsqueeze(0) <= places).to(torch.int64).sum(1) - 1, count


def _counted(indices: Tensor, padding_idx: int, dtype: torch.dtype) -> Tensor:
    """[n, 1]: 1 for each index that counts, 0 for padding."""
    kept = indices != padding_idx if padding_idx >= 0 else indices == indices
    return kept.to(dtype).unsqueeze(1)


def embedding_bag(
    weight: Tensor,
    indices: Tensor,
    offsets: Tensor,
    scale_grad_by_freq: bool = False,
    mode: int = SUM,
    sparse: bool = False,
    per_sample_weights: Tensor | None = None,
    include_last_offset: bool = False,
    padding_idx: int = -1,
) -> Any:
    """The result; for each index its bag; the size of each bag; for a maximum its indices."""
    if sparse or indices.dim() != 1:
        return NotImplemented
    indices, offsets = indices.to(torch.int64), offsets.to(torch.int64)
    bag, count = _bags(indices, offsets, include_last_offset)
    kept = _counted(indices, padding_idx, weight.dtype)
    zeros = torch.zeros([count, weight.shape[1]], dtype=weight.dtype)
    sizes = aten.index_add.default(torch.zeros([count, 1], dtype=weight.dtype), 0, bag, kept)
    whole = aten.squeeze.dim(sizes, 1).to(torch.int64)
    rows = aten.embedding.default(weight, indices)
    if mode == MAX:
        member = torch.logical_and(
            bag.unsqueeze(0) == torch.arange(count).unsqueeze(1), (kept != 0).reshape(1, -1)
        ).unsqueeze(-1)
        values = torch.where(member, rows.unsqueeze(0), -math.inf)  # [bags, n, width]
        winners = aten.index_select.default(
            indices, 0, aten.argmax.default(values, 1).reshape(-1)
        ).reshape(zeros.shape)
        largest = torch.where(sizes > 0, aten.amax.default(values, [1]), 0.0)
        return largest, bag, whole, winners
    if per_sample_weights is not None:
        rows = rows * per_sample_weights.unsqueeze(1)
    total = aten.index_add.default(zeros, 0, bag, rows * kept)
    if mode == MEAN:
        total = total / aten.clamp_min.default(sizes, 1.0)
    return total, bag, whole, whole


def backward(
    grad: Tensor,
    indices: Tensor,
    offsets: Tensor,
    offset2bag: Tensor,
    bag_size: Tensor,
    maximum_indices: Tensor,
    num_weights: int,
    scale_grad_by_freq: bool,
    mode: int,
    sparse: bool,
    per_sample_weights: Tensor | None,
    padding_idx: int = -1,
) -> Any:
    """The gradient of the weight."""
    if sparse or indices.dim() != 1:
        return NotImplemented
    if mode == MAX:
        zeros = torch.zeros([num_weights, grad.shape[1]], dtype=grad.dtype)
        filled = torch.where(bag_size.unsqueeze(1) > 0, grad, 0.0)
        return aten.scatter_add.default(zeros, 0, maximum_indices, filled)
    indices = indices.to(torch.int64)
    if mode == MEAN:
        grad = grad / aten.clamp_min.default(bag_size.to(grad.dtype), 1.0).unsqueeze(1)
    # Not offset2bag: it is empty where ATen takes another path.
    bag, _ = _bags(indices, offsets.to(torch.int64), False)
    rows = aten.index_select.default(grad, 0, bag)
    if per_sample_weights is not None:
        rows = rows * per_sample_weights.unsqueeze(1)
    return aten.embedding_dense_backward.default(
        rows, indices, num_weights, padding_idx, scale_grad_by_freq
    )


def weights_backward(
    grad: Tensor,
    weight: Tensor,
    indices: Tensor,
    offsets: Tensor,
    offset2bag: Tensor,
    mode: int,
    padding_idx: int = -1,
) -> Any:
    """The gradient of the weight of each index."""
    if indices.dim() != 1:
        return NotImplemented
    rows = aten.embedding.default(weight, indices.to(torch.int64))
    bag, _ = _bags(indices, offsets.to(torch.int64), False)
    product = rows * aten.index_select.default(grad, 0, bag)
    kept = _counted(indices, padding_idx, weight.dtype)
    return (product * kept).sum(1)


DEFINITIONS = {
    "aten._embedding_bag.default": embedding_bag,
    "aten._embedding_bag_forward_only.default": embedding_bag,
    "aten._embedding_bag_backward.default": backward,
    "aten._embedding_bag_per_sample_weights_backward.default": weights_backward,
}
