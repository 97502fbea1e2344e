"""Examples of numbers in equal steps."""

from __future__ import annotations

import torch
from hypothesis import strategies as st

from golow.lower.operators.iota import Iota
from support.graphs.drawn_arguments import Drawn, some

RECORDS = (Iota(start=0, step=1.5, count=3, dtype="int64"),)


@st.composite
def _steps(draw: st.DrawFn, *names: str) -> Drawn:
    whole = draw(some)
    given = {"start": 1 if whole else 0.5, "end": 7 if whole else 6.25, "step": draw(
        st.sampled_from([1, 2]) if whole else st.sampled_from([0.5, 1.25])
    )}  # fmt: skip
    named = {name: given[name] for name in names}
    return Drawn(named | {"dtype": torch.int64 if whole else torch.float64})


CALLS = {
    "aten.arange.default": _steps("end"),
    "aten.arange.start": _steps("start", "end"),
    "aten.arange.start_step": _steps("start", "end", "step"),
    "prims.iota.default": st.just(Drawn({
        "length": 5, "start": 2, "step": 3, "dtype": torch.int64, "device": torch.device("cpu"),
        "requires_grad": False,
    })),
}  # fmt: skip
