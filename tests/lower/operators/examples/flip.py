"""Examples of reversed axes."""

from __future__ import annotations

from hypothesis import strategies as st

from golow.lower.operators.flip import Flip
from support.graphs.drawn_arguments import Drawn, X, elements, some

RECORDS = (Flip(x=X, axes=(0, 1)),)


@st.composite
def _flipped(draw: st.DrawFn) -> Drawn:
    x = draw(elements())
    axes = draw(st.lists(st.integers(0, x.dim() - 1), unique=True))
    return Drawn({"self": x, "dims": [a - x.dim() if draw(some) else a for a in axes]})


CALLS = {"aten.flip.default": _flipped()}
