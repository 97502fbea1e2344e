"""Examples of the negative log likelihood."""

from __future__ import annotations

import torch
from hypothesis import strategies as st
from torch import Tensor

from golow.lower.operators.nll_loss import NllLoss, NllLossBackward
from support.graphs.drawn_arguments import Differentiated, Drawn, Named, X
from support.graphs.one_call import tensor

RECORDS = (
    NllLoss(logs=X, target=X, reduction="mean", ignored=-100),
    NllLossBackward(gradient=X, logs=X, target=X, reduction="sum", ignored=1, total_weight=X),
)


@st.composite
def _loss(draw: st.DrawFn) -> Drawn:
    ignored = draw(st.sampled_from([-100, 2]))
    target = torch.tensor([draw(st.sampled_from([0, 1, 3, ignored])) for _ in range(5)])
    return Drawn({
        "self": tensor(5, 4).log_softmax(1), "target": target, "weight": None,
        "reduction": draw(st.integers(1, 2)), "ignore_index": ignored,
    })  # fmt: skip


@st.composite
def _loss_backward(draw: st.DrawFn) -> Drawn:
    named = draw(_loss()).named
    value, total = torch.ops.aten.nll_loss_forward.default(**named)
    more = {"grad_output": tensor(*value.shape, seed=1), "total_weight": total}
    return Drawn(named | more)


CALLS = {
    "aten.nll_loss_forward.default": _loss(),
    "aten.nll_loss_backward.default": _loss_backward(),
}


@st.composite
def _gradient(draw: st.DrawFn) -> Differentiated:
    ignored = draw(st.sampled_from([-100, 1]))
    target = torch.tensor([draw(st.sampled_from([0, 2, ignored])) for _ in range(3)] + [2])
    kept = {
        "logs": tensor(4, 3).log_softmax(1), "target": target,
        "reduction": draw(st.sampled_from(["mean", "sum"])), "ignored": ignored,
    }  # fmt: skip

    def backward(results: tuple[Tensor, ...], gradient: Tensor) -> Named:
        return {"gradient": gradient, **kept, "total_weight": results[1]}

    return Differentiated(kept, ("logs",), backward)


GRADIENTS = {NllLossBackward: _gradient()}
