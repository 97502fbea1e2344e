"""Examples of ranges of an axis."""

from __future__ import annotations

from hypothesis import strategies as st

from golow.lower.operators.slice import Slice
from support.graphs.drawn_arguments import Drawn, X, axis_of, elements
from support.models.many_networks import Function

RECORDS = (Slice(x=X, axis=0, start=0, stop=2, step=1),)


@st.composite
def _range(draw: st.DrawFn) -> Drawn:
    x = draw(elements())
    ends = st.one_of(st.none(), st.integers(-6, 6), st.just(2**63 - 1))
    given = {"start": draw(ends), "end": draw(ends), "step": draw(st.integers(1, 3))}
    return Drawn({"self": x, "dim": axis_of(draw, x)} | given)


CALLS = {"aten.slice.Tensor": _range()}

LAYERS = (Function(lambda x: x[:, 1:3]),)
