"""Sums, means, extremes and products over axes."""

from __future__ import annotations

from hypothesis import strategies as st

from support.aten_calls.drawing import Drawn, axis_of, elements, of_one, some


@st.composite
def reduction(draw: st.DrawFn) -> Drawn:
    x = draw(elements())
    axes = draw(st.lists(st.integers(0, x.dim() - 1), unique=True))
    axes = [axis - x.dim() if draw(some) else axis for axis in axes]
    return Drawn({"self": x, "dim": draw(st.sampled_from([axes, None])), "keepdim": draw(some)})


@st.composite
def extreme(draw: st.DrawFn, keep: bool = True) -> Drawn:
    x = draw(elements())
    return Drawn({"self": x, "dim": axis_of(draw, x), "keepdim": draw(some)})


CALLS: dict[str, st.SearchStrategy[Drawn]] = {
    "aten.sum.dim_IntList": reduction(),
    "aten.mean.dim": reduction(),
    "aten.amax.default": reduction().filter(lambda d: d.named["dim"] is not None),
    "aten.amin.default": reduction().filter(lambda d: d.named["dim"] is not None),
    "aten.max.default": of_one(),
    "aten.min.default": of_one(),
    "aten.prod.default": of_one(),
    "aten.prod.dim_int": extreme(),
    "aten.sum.default": of_one(),
    "aten.mean.default": of_one(),
}  # fmt: skip
