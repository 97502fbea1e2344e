"""Examples of the update of a cache."""

from __future__ import annotations

from golow.lower.operators.cache_update import CacheUpdate
from support.graphs.drawn_arguments import X

RECORDS = (CacheUpdate(x=X, rows=X, position=X, axis=2),)
