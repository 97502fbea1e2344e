"""Examples of elements taken and put by indices of several axes."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from golow.lower.operators.index import Index, IndexPut
from support.graphs.drawn_arguments import Drawn, X, index_below, some
from support.graphs.one_call import tensor

RECORDS = (
    Index(x=X, indices=(None, X)),
    IndexPut(x=X, indices=(X,), values=X, add=True),
)


@st.composite
def _indexed(draw: st.DrawFn, put: bool = False) -> Drawn:
    x = tensor(3, 4, 5)
    pattern = draw(st.sampled_from([(1,), (0, 1), (1, 2), (0, 2), (2,)]))
    whole = (2, 3)
    indices: list[Any] = [None] * 3
    for axis in pattern:
        shape = whole if draw(some) else whole[1:]
        indices[axis] = draw(index_below(x.shape[axis], shape)) - (3 if axis == 1 else 0)
    indices = indices[: pattern[-1] + 1]
    if not put:
        return Drawn({"self": x, "indices": indices})
    complete = tuple(slice(None) if item is None else item for item in indices)
    values = tensor(*x[complete].shape, seed=1)
    # Where two indices name one place, only a sum has a defined result.
    return Drawn({"self": x, "indices": indices, "values": values, "accumulate": True})


CALLS = {
    "aten.index.Tensor": _indexed(),
    "aten._unsafe_index.Tensor": _indexed(),
    "aten.index_put.default": _indexed(put=True),
    "aten._unsafe_index_put.default": _indexed(put=True),
}
