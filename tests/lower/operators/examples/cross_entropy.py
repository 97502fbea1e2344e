"""Examples of the cross-entropy of logits."""

from __future__ import annotations

import torch
from hypothesis import strategies as st
from torch import Tensor

from golow.lower.operators.cross_entropy import CrossEntropy, CrossEntropyBackward
from support.graphs.drawn_arguments import Differentiated, Named, X
from support.graphs.one_call import tensor

NOT_IMPLEMENTED = {"onednn": (CrossEntropy, CrossEntropyBackward)}

RECORDS = (
    CrossEntropy(x=X, target=X, reduction="mean", ignored=-100),
    CrossEntropyBackward(
        gradient=X, x=X, target=X, largest=X, logarithm=X, total_weight=X, reduction="sum",
        ignored=1,
    ),
)  # fmt: skip


@st.composite
def _gradient(draw: st.DrawFn) -> Differentiated:
    ignored = draw(st.sampled_from([-100, 1]))
    target = torch.tensor([draw(st.sampled_from([0, 2, ignored])) for _ in range(3)] + [2])
    kept = {
        "x": tensor(4, 3), "target": target,
        "reduction": draw(st.sampled_from(["mean", "sum"])), "ignored": ignored,
    }  # fmt: skip

    def backward(results: tuple[Tensor, ...], gradient: Tensor) -> Named:
        _, total, largest, logarithm = results
        rows = {"largest": largest, "logarithm": logarithm, "total_weight": total}
        return {"gradient": gradient, **kept, **rows}

    return Differentiated(kept, ("x",), backward)


GRADIENTS = {CrossEntropyBackward: _gradient()}
