"""The negative log likelihood of the targets and its gradient."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from golow.lower.ir.graph import Ref
from golow.lower.ir.operator import Operator

if TYPE_CHECKING:
    from torch import Tensor

    from golow.lower.ir.spelling import Call


Reduction = Literal["mean", "sum"]


class NllLoss(Operator, frozen=True, kw_only=True):
    """-sum or -mean of the targets' log probabilities, and the number of targets that count.

    logs: [N, C]; target: [N], int64. ignored: the class number of targets that do not count. A loss
    of images, with weights for classes, or without a reduction is unfolded instead.
    """

    logs: Ref
    target: Ref
    reduction: Reduction
    ignored: int

    @property
    def results(self) -> int:
        return 2

    @staticmethod
    def meaning(
        logs: Tensor, target: Tensor, reduction: Reduction, ignored: int
    ) -> tuple[Tensor, Tensor]:
        import torch

        loss, total = torch.ops.aten.nll_loss_forward.default(
            logs, target, None, CODES[reduction], ignored
        )
        return loss, total


class NllLossBackward(Operator, frozen=True, kw_only=True):
    """-gradient at the targets' positions, divided by the total weight for a mean; zero
    elsewhere."""

    gradient_of = NllLoss

    gradient: Ref
    logs: Ref
    target: Ref
    reduction: Reduction
    ignored: int
    total_weight: Ref

    @staticmethod
    def meaning(
        gradient: Tensor,
        logs: Tensor,
        target: Tensor,
        reduction: Reduction,
        ignored: int,
        total_weight: Tensor,
    ) -> Tensor:
        import torch

        found: Tensor = torch.ops.aten.nll_loss_backward.default(
            gradient, logs, target, None, CODES[reduction], ignored, total_weight
        )
        return found


CODES: dict[Reduction, int] = {"mean": 1, "sum": 2}  # ATen's numbers


def loss(call: Call) -> NllLoss | None:
    """``nll_loss_forward``."""
    if not _is_plain(call):
        return None
    return NllLoss(
        logs=call.ref("self"),
        target=call.ref("target"),
        reduction=_reduction(call),
        ignored=call.integer("ignore_index"),
    )


def backward(call: Call) -> NllLossBackward | None:
    """``nll_loss_backward``."""
    if not _is_plain(call):
        return None
    return NllLossBackward(
        gradient=call.ref("grad_output"),
        logs=call.ref("self"),
        target=call.ref("target"),
        reduction=_reduction(call),
        ignored=call.integer("ignore_index"),
        total_weight=call.ref("total_weight"),
    )


def _is_plain(call: Call) -> bool:
    reduced = call.integer("reduction") in CODES.values()
    return reduced and call.given("weight") is None and call.rank("self") == 2


def _reduction(call: Call) -> Reduction:
    return "mean" if call.integer("reduction") == CODES["mean"] else "sum"


SPELLINGS = {
    "aten.nll_loss_forward.default": loss,
    "aten.nll_loss_backward.default": backward,
}
