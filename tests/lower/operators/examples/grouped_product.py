"""Examples of products of consecutive rows, each group with a matrix of its own."""

from __future__ import annotations

import torch
from hypothesis import strategies as st
from torch import Tensor

from golow.lower.operators.grouped_product import GroupedProduct, GroupedSums
from support.graphs.drawn_arguments import Differentiated, Named, X
from support.graphs.one_call import tensor

NOT_IMPLEMENTED = {"cudnn": (GroupedSums,)}  # kept whole for oneDNN alone

RECORDS = (
    GroupedProduct(x=X, weight=X, ends=X, turned=True),
    GroupedSums(x=X, gradient=X, ends=X),
)


@st.composite
def _gradient(draw: st.DrawFn) -> Differentiated:
    sizes = draw(st.lists(st.integers(0, 3), min_size=1, max_size=4))
    ends, rows = torch.tensor(sizes).cumsum(0).int(), sum(sizes) + draw(st.integers(1, 2))
    given = {"x": tensor(rows, 3), "weight": tensor(len(sizes), 3, 4), "ends": ends}

    def backward(results: tuple[Tensor, ...], gradient: Tensor) -> Named:
        return {"x": given["x"], "gradient": gradient, "ends": ends}

    return Differentiated({**given, "turned": False}, ("weight",), backward)


GRADIENTS = {GroupedSums: _gradient()}
