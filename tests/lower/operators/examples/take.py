"""Examples of rows by their index, and of sums of rows."""

from __future__ import annotations

import torch
from hypothesis import strategies as st
from torch import Tensor

from golow.lower.operators.take import AddRows, Take, TakeBackward
from support.graphs.drawn_arguments import (
    Differentiated,
    Drawn,
    Named,
    X,
    axis_of,
    elements,
    index_below,
)
from support.graphs.one_call import tensor

NOT_IMPLEMENTED = {"onednn": (AddRows,)}

RECORDS = (
    Take(x=X, index=X, axis=0),
    TakeBackward(gradient=X, index=X, axis=0, size=5, skipped=1),
    AddRows(x=X, gradient=X, index=X, axis=0, skipped=1),
)


@st.composite
def _selected(draw: st.DrawFn) -> Drawn:
    x = draw(elements())
    dim = axis_of(draw, x)
    return Drawn({"self": x, "dim": dim, "index": draw(index_below(x.shape[dim], (2,)))})


@st.composite
def _embedded(draw: st.DrawFn) -> Drawn:
    places = draw(index_below(5, (2,) * draw(st.integers(0, 3))))
    skipped = draw(st.sampled_from([-1, 1]))
    return Drawn({"weight": tensor(5, 3), "indices": places, "padding_idx": skipped})


@st.composite
def _embedding_backward(draw: st.DrawFn) -> Drawn:
    places = draw(index_below(5, (2, 3)))
    return Drawn({
        "grad_output": tensor(2, 3, 4), "indices": places, "num_weights": 5,
        "padding_idx": draw(st.sampled_from([-1, 2])), "scale_grad_by_freq": False,
    })  # fmt: skip


CALLS = {
    "aten.embedding.default": _embedded(),
    "aten.index_select.default": _selected(),
    "aten.embedding_dense_backward.default": _embedding_backward(),
}

LEFT = {
    "gradients by frequency": (
        "aten.embedding_dense_backward.default", tensor(2, 3), torch.tensor([0, 1]), 5, -1, True
    )
}  # fmt: skip


@st.composite
def _gradient(draw: st.DrawFn) -> Differentiated:
    index = torch.tensor(draw(st.sampled_from([[0, 2, 2], [1, 1, 1], [3, 0, 4]])))
    axis = draw(st.integers(0, 1))

    def backward(results: tuple[Tensor, ...], gradient: Tensor) -> Named:
        return {"gradient": gradient, "index": index, "axis": axis, "size": 5, "skipped": -1}

    return Differentiated({"x": tensor(5, 5), "index": index, "axis": axis}, ("x",), backward)


GRADIENTS = {TakeBackward: _gradient()}
