"""Weights with a batch norm folded into them; they are computed while a plan is loaded."""

from golow.levels.direct.cudnn.build.builder import Builder
from golow.levels.direct.implementation import Implementation
from golow.lower.operators.folded_batch_norm import FoldedBias, FoldedWeight

IMPLEMENTATIONS = (
    Implementation(FoldedWeight, Builder.compute_when_loading),
    Implementation(FoldedBias, Builder.compute_when_loading),
)
