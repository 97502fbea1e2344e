"""Time limits for a worker's answers."""

from __future__ import annotations

import msgspec


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """Seconds that a worker may take to answer.

    iteration: of a request for iterations whose time is unknown. block: the least limit once it is
    known; the limit grows with the expected time.
    epoch: of each request of a training run, a piece of an epoch or of its evaluation.
    """

    load: float = 900.0
    outputs: float = 300.0
    iteration: float = 300.0
    block: float = 60.0
    memory: float = 300.0
    epoch: float = 900.0
    quit: float = 5.0
