"""Examples of expansion."""

from __future__ import annotations

from hypothesis import strategies as st

from golow.lower.operators.expand import Expand
from support.graphs.drawn_arguments import Drawn, X, shapes, some
from support.graphs.one_call import tensor

RECORDS = (Expand(x=X, shape=(2, 3)),)


@st.composite
def _expand(draw: st.DrawFn) -> Drawn:
    shape = draw(shapes)
    kept = [draw(st.sampled_from([1, n])) for n in shape][draw(st.integers(0, len(shape))) :]
    first = len(shape) - len(kept)
    size = [
        -1 if i >= first and kept[i - first] == n and draw(some) else n for i, n in enumerate(shape)
    ]
    return Drawn({"self": tensor(*kept), "size": size})


CALLS = {
    "aten.expand.default": _expand(),
    "aten.expand_as.default": st.just(Drawn({"self": tensor(3, 1), "other": tensor(2, 3, 4)})),
}
