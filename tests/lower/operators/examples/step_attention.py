"""Examples of a new token's attention."""

from __future__ import annotations

from golow.lower.operators.step_attention import StepAttention
from support.graphs.drawn_arguments import X

NOT_IMPLEMENTED = {"onednn": (StepAttention,)}

RECORDS = (
    StepAttention(
        query=X, key=X, value=X, keys=X, values=X, position=X, cosine=X, sine=X, scale=None,
        window=0,
    ),
)  # fmt: skip
