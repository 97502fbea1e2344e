"""softmax, its logarithm, and their gradients."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from golow.lower.ir.graph import Ref
from golow.lower.ir.operator import Operator

if TYPE_CHECKING:
    from torch import Tensor

    from golow.lower.ir.spelling import Call


class Softmax(Operator, frozen=True, kw_only=True):
    """softmax of x over an axis; log: its logarithm."""

    x: Ref
    axis: int
    log: bool

    @staticmethod
    def meaning(x: Tensor, axis: int, log: bool) -> Tensor:
        return x.log_softmax(axis) if log else x.softmax(axis)


class SoftmaxBackward(Operator, frozen=True, kw_only=True):
    """The gradient of x, from the result and its gradient."""

    gradient_of = Softmax

    gradient: Ref
    result: Ref
    axis: int
    log: bool

    @staticmethod
    def meaning(gradient: Tensor, result: Tensor, axis: int, log: bool) -> Tensor:
        if log:
            return gradient - result.exp() * gradient.sum(axis, keepdim=True)
        return result * (gradient - (gradient * result).sum(axis, keepdim=True))


def softmax(call: Call, log: bool) -> Softmax | None:
    """``softmax`` and ``log_softmax`` over an axis that keep the dtype."""
    if not call.same_dtype("self") or call.rank("self") == 0:
        return None
    return Softmax(x=call.ref("self"), axis=call.axis("dim"), log=log)


def backward(call: Call, log: bool) -> SoftmaxBackward | None:
    """``_softmax_backward_data`` and ``_log_softmax_backward_data``."""
    if not call.same_dtype("grad_output", "output") or call.rank("output") == 0:
        return None
    return SoftmaxBackward(
        gradient=call.ref("grad_output"),
        result=call.ref("output"),
        axis=call.axis("dim", "output"),
        log=log,
    )


SPELLINGS = {
    "aten.softmax.int": partial(softmax, log=False),
    "aten._softmax.default": partial(softmax, log=False),
    "aten.log_softmax.int": partial(softmax, log=True),
    "aten._log_softmax.default": partial(softmax, log=True),
    "aten._softmax_backward_data.default": partial(backward, log=False),
    "aten._log_softmax_backward_data.default": partial(backward, log=True),
}
