"""Examples of several recurrent layers as one call."""

from __future__ import annotations

from golow.lower.operators.recurrent_layers import RecurrentLayers
from support.graphs.drawn_arguments import X

NOT_IMPLEMENTED = {"onednn": (RecurrentLayers,)}

RECORDS = (
    RecurrentLayers(
        kind="gru", layers=2, bidirectional=True, batch_first=True, biased=False, x=X, hidden=X,
        cell=None, weights=(X, X),
    ),
)  # fmt: skip
