"""Examples of sums, means, extremes and products over axes."""

from __future__ import annotations

import torch
from hypothesis import strategies as st

from golow.lower.operators.reduce import Reduce
from support.graphs.drawn_arguments import IMAGE, Drawn, X, along_an_axis, elements, of_one, some
from support.models.many_networks import Function

RECORDS = (Reduce(function="sum", x=X, axes=(0, 1), keep=False),)


@st.composite
def _reduction(draw: st.DrawFn) -> Drawn:
    x = draw(elements())
    axes = draw(st.lists(st.integers(0, x.dim() - 1), unique=True))
    axes = [axis - x.dim() if draw(some) else axis for axis in axes]
    return Drawn({"self": x, "dim": draw(st.sampled_from([axes, None])), "keepdim": draw(some)})


CALLS = {
    "aten.sum.dim_IntList": _reduction(),
    "aten.mean.dim": _reduction(),
    "aten.amax.default": _reduction().filter(lambda d: d.named["dim"] is not None),
    "aten.amin.default": _reduction().filter(lambda d: d.named["dim"] is not None),
    "aten.max.default": of_one(),
    "aten.min.default": of_one(),
    "aten.prod.default": of_one(),
    "aten.prod.dim_int": along_an_axis(),
    "aten.sum.default": of_one(),
    "aten.mean.default": of_one(),
}

LEFT = {
    "sum into another dtype": (
        "aten.sum.dim_IntList", IMAGE.float(), [1], {"dtype": torch.float64}
    ),
    "mean into another dtype": ("aten.mean.default", IMAGE.float(), {"dtype": torch.float64}),
    "sum of truths": ("aten.sum.default", torch.arange(6).reshape(2, 3) > 2),
}  # fmt: skip

LAYERS = (
    Function(lambda x: x.mean((2, 3), keepdim=True)),
    Function(lambda x: x.sum(1)),
)
