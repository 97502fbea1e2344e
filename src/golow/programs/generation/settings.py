"""Settings of a text generation other than the texts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from golow.worker.time_limits import Limits


@dataclass(frozen=True, kw_only=True)
class GenerationSettings:
    """levels: names, or None for all. workers: commands of the user's own levels, by name. seconds:
    of the race, for each level. interval: relative width of the intervals at which it may end.
    cache: folder for builds; golow's own by default. limits: how long workers may take to answer.
    """

    levels: Sequence[str] | None = None
    workers: Mapping[str, Sequence[str]] | None = None
    seconds: float = 20.0
    interval: float = 0.02
    cache: Path | None = None
    limits: Limits | None = None
