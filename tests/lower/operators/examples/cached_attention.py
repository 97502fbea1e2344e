"""Examples of attention over a cache."""

from __future__ import annotations

from golow.lower.operators.cached_attention import CachedAttention
from support.graphs.drawn_arguments import X

RECORDS = (CachedAttention(query=X, key=X, value=X, position=X, scale=None),)
