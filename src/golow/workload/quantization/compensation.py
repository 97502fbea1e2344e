"""Rounding of a weight whose errors make up for one another in the outputs of its layer.

Inputs are rounded in order, and the weights of later inputs take over the error of the earlier ones
as far as the inputs rise and fall together in samples (Frantar, Ashkboos, Hoefler & Alistarh,
"GPTQ", 2022).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple, Protocol

import torch
from torch import Tensor

DAMPING = 0.01
"""Added to the mean square of each input, as a share of the mean of all: what samples hardly show
has little influence."""
BLOCK = 128
"""Inputs after which all later weights are changed, by one matrix product."""


class Numbers(Protocol):
    """The numbers that weights become."""

    def scale_of(self, weight: Tensor) -> Tensor:
        """The scale of each group of weights, [..., group] -> [..., 1]."""

    def nearest(self, weight: Tensor, scale: Tensor) -> Tensor:
        """The nearest numbers of weights, in float64, before they are multiplied by the scale."""


class RoundedWeight(NamedTuple):
    """numbers: [outputs, groups, group]; scale: [outputs, groups, 1]."""

    numbers: Tensor
    scale: Tensor


def rounded(weight: Tensor, to: Numbers, group: int, moments: Tensor | None) -> RoundedWeight:
    """The numbers of a weight [outputs, inputs], and a scale for each group of inputs. moments:
    [inputs, inputs], the mean product of each two inputs, in float64; without them each weight
    becomes the nearest number."""
    wide = weight.double()
    if moments is not None:
        return _compensated(wide, to, group, moments)
    grouped = wide.reshape(len(wide), -1, group)
    scale = to.scale_of(grouped)
    return RoundedWeight(to.nearest(grouped, scale), scale)


def _compensated(weight: Tensor, to: Numbers, group: int, moments: Tensor) -> RoundedWeight:
    factor, left, numbers = _factor(moments), weight.clone(), torch.empty_like(weight)
    scales: list[Tensor] = []
    for first, last in _blocks(weight.shape[1], group):
        if first % group == 0:
            scales.append(to.scale_of(left[:, first : first + group]))
        part, own = left[:, first:last], factor[first:last, first:last]
        errors, scale = torch.empty_like(part), scales[-1]
        for i in range(last - first):
            found = to.nearest(part[:, i : i + 1], scale)
            errors[:, i : i + 1] = (part[:, i : i + 1] - found * scale) / own[i, i]
            part[:, i + 1 :] -= errors[:, i : i + 1] * own[i, i + 1 :]
            numbers[:, first + i : first + i + 1] = found
        left[:, last:] -= errors @ factor[first:last, last:]
    return RoundedWeight(numbers.reshape(len(weight), -1, group), torch.stack(scales, 1))


def _blocks(inputs: int, group: int) -> Iterator[tuple[int, int]]:
    """Yield the first and the last input of each block; none has inputs of two groups."""
    for start in range(0, inputs, group):
        for first in range(start, start + group, BLOCK):
            yield first, min(first + BLOCK, start + group)


def _factor(moments: Tensor) -> Tensor:
    """The upper Cholesky factor of the inverse of the moments. Row i has what an error in input i
    changes in later ones, times its diagonal element."""
    mean = moments.diagonal().mean()
    damping = torch.where(mean > 0, DAMPING * mean, 1.0)
    damped = moments + damping * torch.eye(len(moments), dtype=moments.dtype)
    inverse = torch.cholesky_inverse(torch.linalg.cholesky(damped))
    found: Tensor = torch.linalg.cholesky(inverse, upper=True)
    return found
