"""Remarks on a life cycle's figures: interrupted, noisy, not settled, uncertain."""

from __future__ import annotations

from collections.abc import Iterator

from golow.programs.life.life_record import CacheState, LevelLife, LifeCycle
from golow.programs.life.stages import STAGES, spread, stage_spread
from golow.report.units import seconds_text, share_text

BUSY = 0.05  # of a life; a block of a race is shorter, and its limit lower
WIDE = 0.2  # of the median: a range that is named
SHORT = 0.05  # of a life's start: stages that are shorter are not named for their range


def caches(found: LifeCycle) -> tuple[CacheState, ...]:
    """The states of the cache in which any level lived."""
    states: tuple[CacheState, ...] = ("cold", "warm")
    return tuple(state for state in states if any(level.of(state) for level in found.levels))


def remarks(found: LifeCycle) -> Iterator[str]:
    """Notes, the most important first."""
    if found.interrupted:
        yield "interrupted: partial results"
    yield from found.notes
    yield (
        "cold is an empty cache of golow, not of the system: programs and libraries were in memory"
    )
    for level in found.levels:
        for cache in caches(found):
            yield from _of_lives(level, cache)


def _of_lives(level: LevelLife, cache: CacheState) -> Iterator[str]:
    lives = level.of(cache)
    waited = spread(one.figure("wait_share") for one in lives)
    if waited is not None and waited.median > BUSY:
        yield f"{level.level}, {cache}: waited for a core {share_text(waited.median)} of the time"
    unsettled = sum(one.settled_after is None for one in lives)
    if unsettled:
        yield f"{level.level}, {cache}: {unsettled} of {len(lives)} lives did not settle"
    start = max((one.start for one in lives), default=0.0)
    for stage in STAGES:
        found = stage_spread(lives, stage)
        if found is None or stage == "steady_iteration" or found.median < SHORT * start:
            continue
        if found.high - found.low > WIDE * found.median:
            yield (
                f"{level.level}, {cache}: {stage.replace('_', ' ')} from "
                f"{seconds_text(found.low)} to {seconds_text(found.high)}"
            )
