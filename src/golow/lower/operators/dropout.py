"""Dropout in training, and its gradient."""

from __future__ import annotations

from typing import TYPE_CHECKING

from golow.lower.ir.graph import Ref
from golow.lower.ir.operator import Operator

if TYPE_CHECKING:
    from torch import Tensor

    from golow.lower.ir.spelling import Call


class Dropout(Operator, frozen=True, kw_only=True):
    """x with each element set to zero with this probability and the others scaled up, and the mask
    of the elements kept."""

    x: Ref
    probability: float

    @property
    def results(self) -> int:
        return 2

    @staticmethod
    def meaning(x: Tensor, probability: float) -> tuple[Tensor, Tensor]:
        import torch

        result, mask = torch.ops.aten.native_dropout.default(x, probability, True)
        return result, mask


class DropoutBackward(Operator, frozen=True, kw_only=True):
    """gradient * mask * scale."""

    gradient_of = Dropout

    gradient: Ref
    mask: Ref
    scale: float

    @staticmethod
    def meaning(gradient: Tensor, mask: Tensor, scale: float) -> Tensor:
        return gradient * mask * scale


def dropout(call: Call) -> Dropout | None:
    """``native_dropout``, unless ``train`` is False."""
    if call.given("train") is False:
        return None
    return Dropout(x=call.ref("input"), probability=call.number("p"))


def backward(call: Call) -> DropoutBackward:
    """``native_dropout_backward``."""
    return DropoutBackward(
        gradient=call.ref("grad_output"), mask=call.ref("mask"), scale=call.number("scale")
    )


SPELLINGS = {
    "aten.native_dropout.default": dropout,
    "aten.native_dropout_backward.default": backward,
}
