"""The settings of a life cycle. Importing this imports no torch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from golow.records.errors import GolowError
from golow.worker.time_limits import Limits

MOST_ROUNDS = 100


@dataclass(frozen=True, kw_only=True)
class LifeSettings:
    """levels, workers, cache, limits: as of the comparison. rounds: in each, every level lives once
    with a cold and once with a warm cache. cold: build in empty folders; without that, lives are
    warm only, from golow's own cache, and no batch size is changed."""

    levels: Sequence[str] | None = None
    workers: Mapping[str, str | Sequence[str]] = field(default_factory=dict)
    rounds: int = 3
    cold: bool = True
    cache: Path | None = None
    limits: Limits | None = None


def require_rounds(rounds: int) -> None:
    """Raise `GolowError` for a number of rounds that makes no sense."""
    if not 1 <= rounds <= MOST_ROUNDS:
        raise GolowError(f"{rounds} is not a valid number of rounds", "use --life-rounds 3 or so.")
