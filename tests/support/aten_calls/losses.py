"""The negative log likelihood and its gradient."""

from __future__ import annotations

import torch
from hypothesis import strategies as st

from support.aten_calls.drawing import Drawn
from support.one_call import tensor


@st.composite
def loss(draw: st.DrawFn) -> Drawn:
    ignored = draw(st.sampled_from([-100, 2]))
    target = torch.tensor([draw(st.sampled_from([0, 1, 3, ignored])) for _ in range(5)])
    return Drawn(
        {
            "self": tensor(5, 4).log_softmax(1),
            "target": target,
            "weight": None,
            "reduction": draw(st.integers(1, 2)),
            "ignore_index": ignored,
        }
    )


@st.composite
def loss_backward(draw: st.DrawFn) -> Drawn:
    named = draw(loss()).named
    value, total = torch.ops.aten.nll_loss_forward.default(**named)
    more = {"grad_output": tensor(*value.shape, seed=1), "total_weight": total}
    return Drawn(named | more)


CALLS: dict[str, st.SearchStrategy[Drawn]] = {
    "aten.nll_loss_forward.default": loss(),
    "aten.nll_loss_backward.default": loss_backward(),
}  # fmt: skip
