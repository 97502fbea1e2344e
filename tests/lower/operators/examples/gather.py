"""Examples of elements taken and put by an index of their own."""

from __future__ import annotations

import torch
from hypothesis import strategies as st

from golow.lower.operators.gather import Gather, Scatter
from support.graphs.drawn_arguments import Drawn, Named, X, axis_of, elements, index_below
from support.graphs.one_call import tensor

RECORDS = (
    Gather(x=X, index=X, axis=0),
    Scatter(x=X, index=X, source=X, axis=0, add=True),
)


@st.composite
def _gathered(draw: st.DrawFn, source: str = "", add: bool = False) -> Drawn:
    x = draw(elements())
    axis = axis_of(draw, x)
    shape = list(x.shape)
    places = torch.argsort(tensor(*shape, seed=3), axis)  # each place once
    if add:
        places = draw(index_below(shape[axis], tuple(shape)))
    named: Named = {"self": x, "dim": axis, "index": places}
    if source:
        named[source] = 1.5 if source == "value" else tensor(*shape, seed=4)
    return Drawn(named)


CALLS = {
    "aten.gather.default": _gathered(),
    "aten.scatter.src": _gathered("src"),
    "aten.scatter.value": _gathered("value"),
    "aten.scatter_add.default": _gathered("src", add=True),
}
