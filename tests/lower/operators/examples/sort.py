"""Examples of sorting, and of the place of the largest."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from golow.lower.operators.sort import ArgReduce, Sort
from support.graphs.drawn_arguments import IMAGE, Drawn, X, along_an_axis, axis_of, elements, some

RECORDS = (
    Sort(x=X, axis=0, descending=True),
    ArgReduce(function="maximum", x=X, axis=1, keep=True),
)


@st.composite
def _sorted_elements(draw: st.DrawFn, **further: Any) -> Drawn:
    x = draw(elements()).round()  # some are equal
    named = {"self": x, "dim": axis_of(draw, x), "descending": draw(some)}
    return Drawn(named | further, None if further else 1)


CALLS = {
    "aten.sort.default": _sorted_elements().map(lambda d: Drawn(d.named)),
    "aten.sort.stable": _sorted_elements(stable=True),
    "aten.argmax.default": along_an_axis(),
    "aten.argmin.default": along_an_axis(),
}

LEFT = {"the largest of all": ("aten.argmax.default", IMAGE)}
