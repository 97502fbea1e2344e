"""Examples of concatenation."""

from __future__ import annotations

import torch
from hypothesis import strategies as st

from golow.lower.operators.concatenate import Concatenate
from support.graphs.drawn_arguments import Drawn, X, shapes, some
from support.graphs.one_call import tensor
from support.models.many_networks import Function

RECORDS = (Concatenate(parts=(X, X), axis=1),)


@st.composite
def _concatenation(draw: st.DrawFn) -> Drawn:
    shape = list(draw(shapes))
    axis = draw(st.integers(0, len(shape) - 1))
    sizes = draw(st.lists(st.integers(0, 3), min_size=1, max_size=3))
    parts = [tensor(*shape[:axis], n, *shape[axis + 1 :], seed=n) for n in sizes]
    return Drawn({"tensors": parts, "dim": axis - len(shape) if draw(some) else axis})


CALLS = {"aten.cat.default": _concatenation()}

LAYERS = (Function(lambda x: torch.cat([x, x], 1)),)
