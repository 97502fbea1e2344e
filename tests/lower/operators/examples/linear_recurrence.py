"""Examples of linear recurrences."""

from __future__ import annotations

from hypothesis import strategies as st
from torch import Tensor

from golow.lower.operators.linear_recurrence import LinearRecurrence, LinearRecurrenceBackward
from support.graphs.drawn_arguments import Differentiated, Named, X
from support.graphs.one_call import tensor

RECORDS = (
    LinearRecurrence(decay=X, x=X, axis=1),
    LinearRecurrenceBackward(gradient=X, decay=X, states=X, axis=1),
)


@st.composite
def _gradient(draw: st.DrawFn) -> Differentiated:
    shape, axis = draw(st.lists(st.integers(2, 4), min_size=3, max_size=3)), draw(st.integers(0, 2))
    named: Named = {"decay": tensor(*shape), "x": tensor(*shape, seed=1)}

    def backward(results: tuple[Tensor, ...], gradient: Tensor) -> Named:
        return {"gradient": gradient, "decay": named["decay"], "states": results[0], "axis": axis}

    return Differentiated({**named, "axis": axis}, ("decay", "x"), backward)


GRADIENTS = {LinearRecurrenceBackward: _gradient()}
