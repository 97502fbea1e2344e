"""Mixtures of experts as transformers computes them: rows in the order of their experts, and where
the rows of each expert end. How many rows an expert has depends on content, so every expert
computes all of them here, of which those that are not its own are zero: one product, whose inner
axis is that of all experts."""

from __future__ import annotations

import torch
from torch import Tensor


def _chosen(rows: int, ends: Tensor) -> Tensor:
    """[rows, experts, 1]: whether a row is among those of an expert. ends: [experts], the first row
    after its own. Rows after the last end belong to no group."""
    starts = torch.cat([torch.zeros_like(ends[:1]), ends[:-1]])
    row = torch.arange(rows)[:, None, None]
    return (row >= starts[:, None]) & (row < ends[:, None])


def _spread(input: Tensor, ends: Tensor) -> Tensor:
    """[rows, width] -> [rows, experts x width]: each row where its expert reads it."""
    wide = input.unsqueeze(1).expand(-1, ends.shape[0], -1)
    return wide.masked_fill(~_chosen(input.shape[0], ends), 0.0).flatten(1)


def grouped_product(input: Tensor, weight: Tensor, offs: Tensor) -> Tensor:
    """input: [rows, width], weight: [experts, width, outputs], offs: [experts], the rows' ends."""
    return _spread(input, offs) @ weight.flatten(0, 1)


def grouped_sums(x: Tensor, gradient: Tensor, offs: Tensor) -> Tensor:
    """x: [rows, width], gradient: [rows, outputs]; the sums [experts, width, outputs] over the rows
    of each expert."""
    sums = _spread(x, offs).t() @ gradient
    return sums.unflatten(0, (offs.shape[0], x.shape[1]))


def grouped_product_backward(
    input: Tensor, weight: Tensor, offs: Tensor, grad_output: Tensor
) -> tuple[Tensor, Tensor]:
    """The gradients of input and weight."""
    by_expert = (grad_output @ weight.flatten(0, 1).t()).unflatten(1, weight.shape[:2])
    by_input = by_expert.masked_fill(~_chosen(input.shape[0], offs), 0.0).sum(1)
    return by_input, grouped_sums(input, grad_output, offs)


DEFINITIONS = {
    "transformers.grouped_mm_fallback.default": grouped_product,
    "transformers.grouped_mm_fallback_backward.default": grouped_product_backward,
}
