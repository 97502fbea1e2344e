"""Examples of what group norm computes of its groups."""

from __future__ import annotations

from golow.lower.operators.group_norm import GroupMoments, GroupNormGradients
from support.graphs.drawn_arguments import X

RECORDS = (
    GroupMoments(x=X, groups=4, epsilon=1e-5),
    GroupNormGradients(gradient=X, x=X, mean=X, deviation=X, weight=None, groups=4),
)
