"""Examples of one recurrent layer in one direction."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st
from torch import Tensor

from golow.lower.operators.recurrence import GATES, Recurrence, RecurrenceBackward
from support.graphs.drawn_arguments import Differentiated, Named, X, some
from support.graphs.one_call import tensor

_LAYER: dict[str, Any] = {
    "kind": "lstm", "backwards": True, "x": X, "hidden": X, "cell": X, "input_weight": X,
    "hidden_weight": X, "input_bias": X, "hidden_bias": X, "projection": X,
}  # fmt: skip

RECORDS = (
    Recurrence(**_LAYER),
    RecurrenceBackward(**_LAYER, gradient=X, last_gradient=X, output=X),
)


@st.composite
def _gradient(draw: st.DrawFn) -> Differentiated:
    kind, biased = draw(st.sampled_from(sorted(GATES))), draw(some)
    lstm = kind == "lstm"
    projected = lstm and draw(some)
    rows, width = GATES[kind] * 3, 2 if projected else 3
    named: Named = {
        "x": tensor(draw(st.integers(1, 3)), 2, 4), "hidden": tensor(2, width, seed=1),
        "cell": tensor(2, 3, seed=2) if lstm else None,
        "input_weight": tensor(rows, 4, seed=3), "hidden_weight": tensor(rows, width, seed=4),
        "input_bias": tensor(rows, seed=5) if biased else None,
        "hidden_bias": tensor(rows, seed=6) if biased else None,
        "projection": tensor(2, 3, seed=7) if projected else None,
    }  # fmt: skip
    given = {"kind": kind, "backwards": draw(some), **named}

    def backward(results: tuple[Tensor, ...], gradient: Tensor) -> Named:
        return given | {"gradient": gradient, "last_gradient": None, "output": results[0]}

    wanted = tuple(v is not None for v in named.values())
    return Differentiated(given, tuple(named), backward, wanted)


GRADIENTS = {RecurrenceBackward: _gradient()}
