"""Examples of linear layers."""

from __future__ import annotations

from hypothesis import strategies as st

from golow.lower.operators.linear import Linear
from support.graphs.drawn_arguments import Drawn, X, some
from support.graphs.one_call import Transposed, tensor
from support.graphs.written_graphs import RELU

RECORDS = (Linear(x=X, weight=X, bias=X, residual=None, activation=RELU),)


@st.composite
def _linear(draw: st.DrawFn) -> Drawn:
    before = draw(st.lists(st.integers(1, 3), max_size=2))
    bias = tensor(5) if draw(some) else None
    return Drawn({"input": tensor(*before, 6), "weight": tensor(5, 6), "bias": bias})


def _addmm() -> st.SearchStrategy[Drawn]:
    x = tensor(3, 6)
    return st.just(Drawn({"self": tensor(5), "mat1": x, "mat2": Transposed(tensor(5, 6))}))


CALLS = {"aten.linear.default": _linear(), "aten.addmm.default": _addmm()}

_MATRIX = Transposed(tensor(5, 6))

LEFT = {
    "product and a matrix": ("aten.addmm.default", tensor(3, 5), tensor(3, 6), _MATRIX),
    "product and half a bias": (
        "aten.addmm.default", tensor(5), tensor(3, 6), _MATRIX, {"beta": 0.5}
    ),
    "twice a product and a bias": (
        "aten.addmm.default", tensor(5), tensor(3, 6), _MATRIX, {"alpha": 2}
    ),
    "product and a bias, not transposed": (
        "aten.addmm.default", tensor(5), tensor(3, 6), tensor(6, 5)
    ),
}  # fmt: skip
