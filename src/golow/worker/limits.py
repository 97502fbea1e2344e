"""Time limits for a worker's answers."""

from __future__ import annotations

import msgspec


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """Seconds that a worker may take to answer; the time request's limit grows with its work.

    epoch: of each request of a training run, a piece of an epoch or of its evaluation.
    """

    load: float = 900.0
    outputs: float = 300.0
    iteration: float = 300.0
    memory: float = 300.0
    epoch: float = 900.0
    quit: float = 5.0
