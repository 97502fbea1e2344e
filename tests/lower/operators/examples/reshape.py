"""Examples of the same elements by another shape."""

from __future__ import annotations

from hypothesis import strategies as st
from torch import nn

from golow.lower.operators.reshape import Reshape
from support.graphs.drawn_arguments import Drawn, X, elements, some
from support.graphs.one_call import tensor
from support.models.many_networks import Function

RECORDS = (Reshape(x=X, shape=(6,)),)


@st.composite
def _shaped(draw: st.DrawFn, name: str) -> Drawn:
    """One size of the new shape may be left to find."""
    x = draw(elements())
    shape = draw(st.permutations(x.shape))
    if draw(some):
        shape = [*shape[:1], -1] if len(shape) > 1 else [-1, 1]
    return Drawn({"self": x, name: list(shape)})


@st.composite
def _flatten(draw: st.DrawFn) -> Drawn:
    x = draw(elements())
    ends = sorted(draw(st.lists(st.integers(0, x.dim() - 1), min_size=2, max_size=2)))
    start, end = (axis - x.dim() if draw(some) else axis for axis in ends)
    return Drawn({"self": x, "start_dim": start, "end_dim": end})


@st.composite
def _squeeze(draw: st.DrawFn, several: bool) -> Drawn:
    x = tensor(*draw(st.lists(st.sampled_from([1, 1, 3]), min_size=1, max_size=4)))
    axes = draw(st.lists(st.integers(0, x.dim() - 1), unique=True, min_size=1))
    axes = [axis - x.dim() if draw(some) else axis for axis in axes]
    return Drawn({"self": x, "dim": axes if several else axes[0]})


@st.composite
def _unsqueeze(draw: st.DrawFn) -> Drawn:
    x = draw(elements())
    return Drawn({"self": x, "dim": draw(st.integers(-x.dim() - 1, x.dim()))})


@st.composite
def _view_as(draw: st.DrawFn) -> Drawn:
    x = draw(elements())
    return Drawn({"self": x, "other": tensor(*draw(st.permutations(x.shape)))})


CALLS = {
    "aten.view.default": _shaped("size"),
    "aten._unsafe_view.default": _shaped("size"),
    "aten.reshape.default": _shaped("shape"),
    "aten.view_as.default": _view_as(),
    "aten.flatten.using_ints": _flatten(),
    "aten.unflatten.int": st.sampled_from([[2, 3], [-1, 2], [6, 1]]).map(
        lambda sizes: Drawn({"self": tensor(4, 6, 2), "dim": -2, "sizes": sizes})
    ),
    "aten.squeeze.default": st.sampled_from([(1, 3, 1), (1, 1), (2, 3)]).map(
        lambda shape: Drawn({"self": tensor(*shape)})
    ),
    "aten.squeeze.dim": _squeeze(several=False),
    "aten.squeeze.dims": _squeeze(several=True),
    "aten.unsqueeze.default": _unsqueeze(),
}

LAYERS = (nn.Flatten(2), Function(lambda x: x.mean((2, 3)).unsqueeze(-1)))
