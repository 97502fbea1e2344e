"""Weights with a batch norm folded into them; they are computed while a plan is loaded."""

from golow.levels.direct.cudnn.build.load_once import compute_when_loading
from golow.levels.direct.implementation import Implementation
from golow.lower.operators.folded_batch_norm import FoldedBias, FoldedWeight

IMPLEMENTATIONS = (
    Implementation(FoldedWeight, compute_when_loading),
    Implementation(FoldedBias, compute_when_loading),
)
