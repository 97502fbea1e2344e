"""Group norm (Wu and He 2018, arXiv:1803.08494): the figures of all elements of a group of
channels, for the forward pass and for its gradients. All else of it is functions of elements."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from golow.lower.ir.graph import Ref
from golow.lower.ir.operator import Operator

if TYPE_CHECKING:
    from torch import Tensor

# Values of `GroupNormGradients` for the gradient of x, for those of weight and bias, and for the
# parts of the latter that come from each image.
OF_X, OF_VECTORS, OF_IMAGES = (0, 1, 2), (3, 4), (5, 6)


class GroupMoments(Operator, frozen=True, kw_only=True):
    """Mean and 1 / sqrt(variance + epsilon) of each group of channels, as [N, C, 1, 1, ...]: the
    same for all channels of a group."""

    x: Ref
    groups: int
    epsilon: float

    @property
    def results(self) -> int:
        return 2

    @staticmethod
    def meaning(x: Tensor, groups: int, epsilon: float) -> tuple[Tensor, Tensor]:
        rows = x.reshape(x.shape[0], groups, -1)
        mean, variance = rows.mean(2), rows.var(2, unbiased=False)
        return _by_channel(mean, x), _by_channel((variance + epsilon).rsqrt(), x)


class GroupNormGradients(Operator, frozen=True, kw_only=True):
    """Figures of whole groups for the gradients of group norm. That of x is gradient * factor + (x
    - mean) * slope + offset, of which these three are returned as [N, C, 1, 1, ...]; and the
    gradients of weight and bias, [C], with the parts of them that come from each image, [N, C]."""

    gradient: Ref
    x: Ref
    mean: Ref
    deviation: Ref
    weight: Ref | None
    groups: int

    @property
    def results(self) -> int:
        return 7

    @staticmethod
    def meaning(
        gradient: Tensor,
        x: Tensor,
        mean: Tensor,
        deviation: Tensor,
        weight: Tensor | None,
        groups: int,
    ) -> tuple[Tensor, ...]:
        pixels = list(range(2, x.dim()))
        plain = gradient.sum(pixels)
        projected = (gradient * ((x - mean) * deviation)).sum(pixels)
        size = math.prod(x.shape[1:]) // groups
        first, second = (
            _by_channel((s if weight is None else s * weight).reshape(len(x), groups, -1).sum(2), x)
            / size
            for s in (plain, projected)
        )
        wide = [1, -1, *[1] * len(pixels)]
        factor = deviation.clone() if weight is None else deviation * weight.reshape(wide)
        slope, offset = -second * deviation * deviation, -first * deviation
        return factor, slope, offset, projected.sum(0), plain.sum(0), projected, plain


def _by_channel(of_groups: Tensor, x: Tensor) -> Tensor:
    """Numbers of groups, [N, groups], as [N, C, 1, 1, ...]."""
    images, channels, *pixels = x.shape
    wide = of_groups[:, :, None].expand(-1, -1, channels // of_groups.shape[1])
    return wide.reshape(images, channels, *[1] * len(pixels))
