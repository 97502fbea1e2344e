"""The weights, or the biases, of layers that are computed as one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from golow.lower.ir.graph import Ref
from golow.lower.ir.operator import Operator

if TYPE_CHECKING:
    from torch import Tensor


class JoinedWeight(Operator, frozen=True, kw_only=True):
    """The parts, one after the other along the first axis, which is that of a layer's outputs."""

    parts: tuple[Ref, ...]

    @staticmethod
    def meaning(parts: list[Tensor]) -> Tensor:
        import torch

        return torch.cat(parts)


def joined_shape(parts: Sequence[tuple[int, ...]]) -> tuple[int, ...]:
    """The shape of parts of these shapes together."""
    return (sum(shape[0] for shape in parts), *parts[0][1:])
