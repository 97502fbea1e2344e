"""Examples of recurrent layers on top of each other."""

from __future__ import annotations

from typing import Any

from golow.lower.operators.recurrent_stack import RecurrentStack, RecurrentStackBackward
from support.graphs.drawn_arguments import X

NOT_IMPLEMENTED = {"onednn": (RecurrentStack, RecurrentStackBackward)}

_STACK: dict[str, Any] = {
    "kind": "lstm", "bidirectional": False, "biased": False, "x": X, "hidden": (X, X),
    "cell": (X, X), "weights": (X, X, X, X),
}  # fmt: skip

RECORDS = (RecurrentStack(**_STACK), RecurrentStackBackward(**_STACK, gradient=X, output=X))
