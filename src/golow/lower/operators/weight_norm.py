"""Weights whose rows have lengths of their own (Salimans and Kingma 2016, "Weight Normalization",
arXiv:1602.07868), and their gradients, for one layer or several."""

from __future__ import annotations

from typing import TYPE_CHECKING

from golow.lower.ir.graph import Ref
from golow.lower.ir.operator import Operator

if TYPE_CHECKING:
    from torch import Tensor


class WeightNorm(Operator, frozen=True, kw_only=True):
    """The weight g v / |v| of each layer, where |v| is over all axes but the first; then the norms
    |v| of each layer, in the shape of its g. Only a pass makes these
    (`golow.lower.recognise.weight_norm`)."""

    v: tuple[Ref, ...]
    g: tuple[Ref, ...]

    @property
    def results(self) -> int:
        return 2 * len(self.v)

    @staticmethod
    def meaning(v: list[Tensor], g: list[Tensor]) -> tuple[Tensor, ...]:
        norms = [_of_rows(one * one, like).sqrt() for one, like in zip(v, g, strict=True)]
        weights = [one * (length / norm) for one, length, norm in zip(v, g, norms, strict=True)]
        return *weights, *norms


class WeightNormBackward(Operator, frozen=True, kw_only=True):
    """The gradients of each layer's v, then of each layer's g, from those of the weights. norms:
    the second half of the results of `WeightNorm`."""

    gradients: tuple[Ref, ...]
    v: tuple[Ref, ...]
    g: tuple[Ref, ...]
    norms: tuple[Ref, ...]

    @property
    def results(self) -> int:
        return 2 * len(self.v)

    @staticmethod
    def meaning(
        gradients: list[Tensor], v: list[Tensor], g: list[Tensor], norms: list[Tensor]
    ) -> tuple[Tensor, ...]:
        of_v, of_g = [], []
        for gradient, one, length, norm in zip(gradients, v, g, norms, strict=True):
            along = _of_rows(gradient * one, length) / norm
            of_v.append((gradient - one * (along / norm)) * (length / norm))
            of_g.append(along)
        return *of_v, *of_g


def _of_rows(x: Tensor, like: Tensor) -> Tensor:
    """The sums of all axes but the first, in the shape of another tensor."""
    return x.reshape(len(x), -1).sum(1).reshape(like.shape)
