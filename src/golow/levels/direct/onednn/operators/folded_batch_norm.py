"""Weights with a batch norm folded into them; they are computed while a plan is loaded."""

from golow.levels.direct.implementation import Implementation
from golow.levels.direct.onednn.build.load_once import compute_when_loading
from golow.levels.direct.refusing import refuse_integers
from golow.lower.operators.folded_batch_norm import FoldedBias, FoldedWeight

IMPLEMENTATIONS = (
    Implementation(FoldedWeight, compute_when_loading, refuse_integers),
    Implementation(FoldedBias, compute_when_loading, refuse_integers),
)
