"""The cross-entropy of rows of scores and its gradient, without the rows' logarithms of softmax."""

from __future__ import annotations

from typing import TYPE_CHECKING

from golow.lower.ir.graph import Ref
from golow.lower.ir.operator import Operator
from golow.lower.operators.nll_loss import NllLoss, NllLossBackward, Reduction

if TYPE_CHECKING:
    from torch import Tensor


class CrossEntropy(Operator, frozen=True, kw_only=True):
    """The mean or sum of -log softmax(x)[target] over the targets that count, and their number.

    x: [N, C]; target: [N], int64. ignored: the class number of targets that do not count. Also
    returns, for each row, its largest element and the logarithm of the sum of exp(x - largest):
    with both, the gradient has softmax as exact as if its logarithm had been kept.
    """

    x: Ref
    target: Ref
    reduction: Reduction
    ignored: int

    @property
    def results(self) -> int:
        return 4

    @staticmethod
    def meaning(
        x: Tensor, target: Tensor, reduction: Reduction, ignored: int
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        loss, total = NllLoss.meaning(x.log_softmax(-1), target, reduction, ignored)
        largest = x.amax(-1)
        logarithm = (x - largest.unsqueeze(-1)).exp().sum(-1).log()
        return loss, total, largest, logarithm


class CrossEntropyBackward(Operator, frozen=True, kw_only=True):
    """The gradient of x: softmax(x) less one at the target, times the gradient of the loss, which a
    mean divides by the total weight. Rows whose target does not count get zeros. largest,
    logarithm: results of `CrossEntropy`."""

    gradient_of = CrossEntropy

    gradient: Ref
    x: Ref
    target: Ref
    largest: Ref
    logarithm: Ref
    total_weight: Ref
    reduction: Reduction
    ignored: int

    @staticmethod
    def meaning(
        gradient: Tensor,
        x: Tensor,
        target: Tensor,
        largest: Tensor,
        logarithm: Tensor,
        total_weight: Tensor,
        reduction: Reduction,
        ignored: int,
    ) -> Tensor:
        logs = x - largest.unsqueeze(-1) - logarithm.unsqueeze(-1)
        of_logs = NllLossBackward.meaning(gradient, logs, target, reduction, ignored, total_weight)
        return of_logs - logs.exp() * of_logs.sum(-1, keepdim=True)
