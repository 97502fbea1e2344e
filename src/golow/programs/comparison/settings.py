"""The settings of a comparison: which levels take part, and how they are raced."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from golow.worker.time_limits import Limits
from golow.worker.turn import Turn


@dataclass(frozen=True, kw_only=True)
class ComparisonSettings:
    """Settings of one comparison.

    levels: names from `golow levels`; None means the default levels. workers: commands of the
    user's own levels, by name. cold: empty the GPU's L2 cache before each timed iteration.
    interval: target width of each ratio's 95% interval, as a share of the ratio. time_limit: of the
    race, in seconds. allow_differs: also time levels that fail the check. locate: find the first
    operation whose result is off where a level differs. by_layer: after the race,
    also time each level step by step. brief: shorten or skip measurements that take seconds, for
    one of many comparisons. cache: folder for builds; golow's own by default. limits: how long
    workers may take to answer. turn: this comparison's place among those that share a GPU.
    """

    levels: Sequence[str] | None = None
    workers: Mapping[str, str | Sequence[str]] = field(default_factory=dict)
    cold: bool = False
    interval: float = 0.02
    time_limit: float = 60.0
    allow_differs: bool = False
    locate: bool = False
    by_layer: bool = False
    brief: bool = False
    cache: Path | None = None
    limits: Limits | None = None
    turn: Turn | None = None
