"""Examples of tensors of one number."""

from __future__ import annotations

from typing import Any

import torch
from hypothesis import strategies as st

from golow.lower.operators.fill import Fill
from support.graphs.drawn_arguments import Drawn, shapes
from support.graphs.one_call import tensor

RECORDS = (Fill(shape=(), value=1.0, dtype="float32"),)


@st.composite
def _filled(draw: st.DrawFn, **further: st.SearchStrategy[Any]) -> Drawn:
    dtype = draw(st.sampled_from([torch.float32, torch.float64, torch.int64, None]))
    size = draw(st.one_of(st.just(()), shapes))
    given = {name: draw(item) for name, item in further.items()}
    return Drawn({"size": list(size), "dtype": dtype} | given)


CALLS = {
    "aten.full.default": _filled(fill_value=st.sampled_from([2, 0.5, float("-inf")])).filter(
        lambda drawn: drawn.named["dtype"] != torch.int64 or drawn.named["fill_value"] == 2
    ),
    "aten.ones.default": _filled(),
    "aten.zeros.default": _filled(),
    "aten.empty.memory_format": st.just(Drawn({"size": [0, 3], "dtype": torch.float64})),
    "aten.empty_like.default": st.just(Drawn({"self": torch.zeros(0, 3, dtype=torch.float64)})),
    "aten.new_empty.default": st.just(Drawn({"self": tensor(2), "size": [0]})),
    "aten.zeros_like.default": st.just(Drawn({"self": tensor(2, 3)})),
    "aten.new_zeros.default": st.just(Drawn({"self": tensor(2), "size": [3, 4]})),
    "aten.full_like.default": st.just(Drawn({"self": tensor(2, 3), "fill_value": 2.5})),
    "aten.new_full.default": st.just(Drawn({"self": tensor(2), "size": [3], "fill_value": 2})),
    "aten.scalar_tensor.default": st.sampled_from([2.5, -1]).map(
        lambda number: Drawn({"s": number, "dtype": torch.float64})
    ),
    "aten.new_ones.default": st.sampled_from([torch.float64, None]).map(
        lambda dtype: Drawn({"self": tensor(2), "size": [3, 4], "dtype": dtype})
    ),
    "aten.ones_like.default": st.just(Drawn({"self": tensor(2, 3)})),
}
