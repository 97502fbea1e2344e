"""How a workload is compared: which levels take part, and how they are raced."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from golow.worker.limits import Limits
from golow.worker.turn import Turn


@dataclass(frozen=True, kw_only=True)
class ComparisonSettings:
    """levels: names as `golow levels` lists them; None is all that run by default. workers:
    commands of the user's own levels, by name. cold: empty the GPU's L2 before each timed
    iteration. interval: relative width to which each ratio's 95% interval is narrowed. time_limit:
    seconds of racing. allow_differs: also time levels that fail the check. by_layer: after the
    race, time each level step by step too. brief: shorten or leave out what takes seconds, as for
    one of many comparisons. cache: where builds are kept, golow's own folder unless given. limits:
    how long workers may take to answer. turn: this comparison's place among those that share a GPU.
    """

    levels: Sequence[str] | None = None
    workers: Mapping[str, str | Sequence[str]] = field(default_factory=dict)
    cold: bool = False
    interval: float = 0.02
    time_limit: float = 60.0
    allow_differs: bool = False
    by_layer: bool = False
    brief: bool = False
    cache: Path | None = None
    limits: Limits | None = None
    turn: Turn | None = None
