"""The negative log likelihood of the targets and its gradient."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from golow.lower.graph import Ref
from golow.lower.operator import Operator

if TYPE_CHECKING:
    from torch import Tensor

    from golow.lower.spelling import Call


Reduction = Literal["none", "mean", "sum"]


class NllLoss(Operator, frozen=True, kw_only=True):
    """-sum or -mean of the targets' log probabilities, and the total weight of the targets that
    count.

    logs: [N, C] or [C]; target: [N] or [], int64; weight: one per class. ignored: the class number
    of targets that do not count.
    """

    logs: Ref
    target: Ref
    weight: Ref | None
    reduction: Reduction
    ignored: int

    @property
    def results(self) -> int:
        return 2

    @staticmethod
    def meaning(
        logs: Tensor, target: Tensor, weight: Tensor | None, reduction: Reduction, ignored: int
    ) -> tuple[Tensor, Tensor]:
        import torch

        loss, total = torch.ops.aten.nll_loss_forward.default(
            logs, target, weight, CODES.index(reduction), ignored
        )
        return loss, total


class NllLossBackward(Operator, frozen=True, kw_only=True):
    """-gradient at the targets' positions, divided by the total weight for a mean; zero
    elsewhere."""

    gradient_of = NllLoss

    gradient: Ref
    logs: Ref
    target: Ref
    weight: Ref | None
    reduction: Reduction
    ignored: int
    total_weight: Ref

    @staticmethod
    def meaning(
        gradient: Tensor,
        logs: Tensor,
        target: Tensor,
        weight: Tensor | None,
        reduction: Reduction,
        ignored: int,
        total_weight: Tensor,
    ) -> Tensor:
        import torch

        found: Tensor = torch.ops.aten.nll_loss_backward.default(
            gradient, logs, target, weight, CODES.index(reduction), ignored, total_weight
        )
        return found


CODES: tuple[Reduction, ...] = ("none", "mean", "sum")  # in the order of ATen's numbers


def loss(call: Call) -> NllLoss:
    """``nll_loss_forward``."""
    return NllLoss(
        logs=call.ref("self"),
        target=call.ref("target"),
        weight=call.ref_or_none("weight"),
        reduction=CODES[call.integer("reduction")],
        ignored=call.integer("ignore_index"),
    )


def backward(call: Call) -> NllLossBackward:
    """``nll_loss_backward``."""
    return NllLossBackward(
        gradient=call.ref("grad_output"),
        logs=call.ref("self"),
        target=call.ref("target"),
        weight=call.ref_or_none("weight"),
        reduction=CODES[call.integer("reduction")],
        ignored=call.integer("ignore_index"),
        total_weight=call.ref("total_weight"),
    )


SPELLINGS = {
    "aten.nll_loss_forward.default": loss,
    "aten.nll_loss_backward.default": backward,
}
