"""Examples of products of matrices."""

from __future__ import annotations

from hypothesis import strategies as st

from golow.lower.operators.matrix_product import MatrixProduct
from support.graphs.drawn_arguments import Drawn, X
from support.graphs.one_call import tensor

RECORDS = (MatrixProduct(a=X, b=X),)


@st.composite
def _product(draw: st.DrawFn, batch: tuple[int, ...]) -> Drawn:
    m, k, n = (draw(st.integers(1, 4)) for _ in range(3))
    return Drawn({"self": tensor(*batch, m, k), "mat2": tensor(*batch, k, n, seed=1)})


CALLS = {"aten.mm.default": _product(()), "aten.bmm.default": _product((2,))}
