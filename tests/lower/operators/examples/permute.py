"""Examples of axes in another order."""

from __future__ import annotations

import torch
from hypothesis import strategies as st

from golow.lower.operators.permute import Permute
from support.graphs.drawn_arguments import Drawn, X, elements, some
from support.graphs.one_call import tensor
from support.models.many_networks import Function

RECORDS = (Permute(x=X, order=(1, 0)),)


@st.composite
def _permute(draw: st.DrawFn) -> Drawn:
    x = draw(elements())
    order = draw(st.permutations(range(x.dim())))
    return Drawn({"self": x, "dims": [a - x.dim() if draw(some) else a for a in order]})


@st.composite
def _transpose(draw: st.DrawFn) -> Drawn:
    x = draw(st.one_of(elements(), st.just(torch.tensor(2.5))))
    ends = st.integers(-max(x.dim(), 1), max(x.dim(), 1) - 1)
    return Drawn({"self": x, "dim0": draw(ends), "dim1": draw(ends)})


def _matrix_transpose() -> st.SearchStrategy[Drawn]:
    return st.sampled_from([(), (3,), (3, 4)]).map(lambda shape: Drawn({"self": tensor(*shape)}))


CALLS = {
    "aten.permute.default": _permute(),
    "aten.transpose.int": _transpose(),
    "aten.t.default": _matrix_transpose(),
}

LAYERS = (Function(lambda x: x.transpose(1, -1)),)
