"""Numbers of 4 bits for a weight in groups of inputs, which share a scale.

Each number is the nearest one, or, if samples show what the layer reads, rounding errors make up
for one another: inputs are rounded in order, and the weights of later inputs take over the error of
the earlier ones as far as the inputs rise and fall together (Frantar, Ashkboos, Hoefler & Alistarh,
"GPTQ", 2022).
"""

from __future__ import annotations

import torch
from torch import Tensor

LOWEST, HIGHEST = -8, 7
CLIPPING = tuple(1 - 0.05 * step for step in range(7))
"""Shares of the largest size in a group that are tried as its range: clipping one weight can make
all others finer."""
DAMPING = 0.01
"""Added to the mean square of each input, as a share of the mean of all: what samples hardly show
has little influence."""


def rounded(weight: Tensor) -> tuple[Tensor, Tensor]:
    """The nearest numbers of a weight [outputs, groups, group], and the scale of each group,
    [outputs, groups, 1]."""
    scale = best_scale(weight)
    return nearest(weight, scale), scale


def compensated(weight: Tensor, moments: Tensor) -> tuple[Tensor, Tensor]:
    """Numbers and scales as of `rounded`, whose errors make up for one another. moments: [inputs,
    inputs], the mean product of each two inputs, in float64."""
    _, groups, group = weight.shape
    factor, left = _factor(moments), weight.flatten(1).clone()
    numbers, scales = torch.empty_like(weight), weight.new_empty((*weight.shape[:2], 1)).float()
    for place in range(groups):
        first, last = place * group, (place + 1) * group
        part, own = left[:, first:last], factor[first:last, first:last]
        scale, errors = best_scale(part), torch.empty_like(part)
        for i in range(group):
            found = nearest(part[:, i : i + 1], scale)
            errors[:, i : i + 1] = (part[:, i : i + 1] - found * scale) / own[i, i]
            part[:, i + 1 :] -= errors[:, i : i + 1] * own[i, i + 1 :]
            numbers[:, place, i : i + 1] = found
        left[:, last:] -= errors @ factor[first:last, last:]
        scales[:, place] = scale
    return numbers, scales


def best_scale(weight: Tensor) -> Tensor:
    """The scale of each group, [..., 1]: of the ranges that are tried, the one with the least
    squared error."""
    largest = weight.abs().amax(-1, keepdim=True)
    best, scales = torch.full_like(largest, torch.inf), torch.ones_like(largest).float()
    for share in CLIPPING:
        # A group of zeros has any scale.
        scale = torch.where(largest > 0, largest * share / HIGHEST, 1.0).float()
        error = (nearest(weight, scale) * scale - weight).square().sum(-1, keepdim=True)
        scales = torch.where(error < best, scale, scales)
        best = torch.minimum(error, best)
    return scales


def nearest(weight: Tensor, scale: Tensor) -> Tensor:
    """The nearest numbers that 4 bits hold."""
    return torch.round(weight / scale).clamp(LOWEST, HIGHEST)


def _factor(moments: Tensor) -> Tensor:
    """The upper Cholesky factor of the inverse of the moments. Row i has what an error in input i
    changes in later ones, times its diagonal element."""
    mean = moments.diagonal().mean()
    damping = torch.where(mean > 0, DAMPING * mean, 1.0)
    damped = moments + damping * torch.eye(len(moments), dtype=moments.dtype)
    inverse = torch.cholesky_inverse(torch.linalg.cholesky(damped))
    found: Tensor = torch.linalg.cholesky(inverse, upper=True)
    return found
