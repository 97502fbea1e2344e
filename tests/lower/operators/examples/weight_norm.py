"""Examples of weight normalisation."""

from __future__ import annotations

from golow.lower.operators.weight_norm import WeightNorm, WeightNormBackward
from support.graphs.drawn_arguments import X

NOT_IMPLEMENTED = {"onednn": (WeightNorm, WeightNormBackward)}

RECORDS = (
    WeightNorm(v=(X, X), g=(X, X)),
    WeightNormBackward(gradients=(X, X), v=(X, X), g=(X, X), norms=(X, X)),
)
