"""Concatenation of tensors along an axis."""

from __future__ import annotations

from typing import TYPE_CHECKING

from golow.lower.ir.graph import Ref
from golow.lower.ir.operator import Operator

if TYPE_CHECKING:
    from torch import Tensor

    from golow.lower.ir.spelling import Call


class Concatenate(Operator, frozen=True, kw_only=True):
    """The parts concatenated along an axis."""

    parts: tuple[Ref, ...]
    axis: int

    @staticmethod
    def meaning(parts: list[Tensor], axis: int) -> Tensor:
        import torch

        return torch.cat(parts, axis)


def concatenate(call: Call) -> Concatenate:
    """``cat(tensors, dim)``."""
    axis = call.integer("dim") % len(call.output().shape)
    return Concatenate(parts=call.refs("tensors"), axis=axis)


SPELLINGS = {"aten.cat.default": concatenate}
