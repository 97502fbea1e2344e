"""From the lives of a level to what is quoted: the median of each stage with its range, the curve
of the total time, and the level to use for this many iterations."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from statistics import median
from typing import NamedTuple, get_args

from golow.programs.life.curve import HORIZON, BreakEven, Curve, break_even, envelope, fastest
from golow.programs.life.life_record import CacheState, LevelLife, Life, LifeCycle, Stage

STAGES: tuple[Stage, ...] = get_args(Stage)
DECADES = tuple(10**power for power in range(8))
LEAST_LIVES = 2  # of a level that has a range


class Spread(NamedTuple):
    """The median of several lives, and the lowest and highest of them."""

    median: float
    low: float
    high: float


class Use(NamedTuple):
    """The level to use for this many iterations, and its total seconds. also: levels that may be as
    fast, because the ranges of their lives overlap. ranged: whether every level has a range."""

    iterations: int
    level: str
    seconds: float
    also: tuple[str, ...]
    ranged: bool


def spread(values: Iterable[float | None]) -> Spread | None:
    """The spread of what was measured; None if nothing was."""
    known = [value for value in values if value is not None]
    return Spread(median(known), min(known), max(known)) if known else None


def stage_spread(lives: Sequence[Life], stage: Stage) -> Spread | None:
    """The spread of one stage over these lives."""
    return spread(one.seconds.get(stage) for one in lives)


def start_spread(lives: Sequence[Life]) -> Spread | None:
    """The spread of the time from the start to the first result."""
    return spread(one.start + one.seconds["first_iteration"] for one in lives)


def steady(level: LevelLife, lives: Sequence[Life]) -> Spread | None:
    """Seconds of a steady iteration: those of the race with their interval, which are known best;
    without an interval those of the lives."""
    time = level.time
    if time is not None and time.low is not None and time.high is not None:
        return Spread(time.value, time.low, time.high)
    return stage_spread(lives, "steady_iteration")


# ---------------------------------------------------------------- curves


def curve(level: LevelLife, cache: CacheState) -> Curve | None:
    """The level's total time with that cache, from the median of each stage; None if a life with it
    failed, or if there is none."""
    lives, each = level.of(cache), steady(level, level.of(cache))
    if level.failed or not lives or each is None:
        return None
    stages = {stage: stage_spread(lives, stage) for stage in STAGES}
    fixed = median(one.start for one in lives)
    after = round(median(_settled_after(one) for one in lives))
    return Curve(
        fixed + _median(stages["end"]),
        _median(stages["first_iteration"]),
        _median(stages["settling"]),
        after,
        each.median,
    )


def curves(found: LifeCycle, cache: CacheState) -> dict[str, Curve]:
    """The curves of all levels that have one, in the ladder's order."""
    drawn = ((level.level, curve(level, cache)) for level in found.levels)
    return {name: one for name, one in drawn if one is not None}


def total_range(level: LevelLife, cache: CacheState, iterations: int) -> tuple[float, float]:
    """The lowest and the highest total of the level's lives, with the ends of the steady time's
    interval."""
    lives = level.of(cache)
    each = steady(level, lives)
    if each is None:
        raise ValueError(f"{level.level} has no {cache} life")
    low = min(_own_curve(one, each.low).total(iterations) for one in lives)
    high = max(_own_curve(one, each.high).total(iterations) for one in lives)
    return low, high


# ---------------------------------------------------------------- conclusions


def uses(found: LifeCycle, cache: CacheState) -> tuple[Use, ...]:
    """The level to use for 1, 10, ... 10^7 iterations; empty if no level has a curve."""
    known = curves(found, cache)
    levels = {level.level: level for level in found.levels if level.level in known}
    return tuple(_use(known, levels, cache, iterations) for iterations in DECADES if known)


def break_evens(found: LifeCycle, cache: CacheState) -> tuple[BreakEven, ...]:
    """Where the lower envelope changes from one level to the next."""
    known = curves(found, cache)
    order = list(dict.fromkeys(segment.level for segment in envelope(known, HORIZON)))
    return tuple(break_even(later, earlier, known) for earlier, later in pairwise(order))


def _use(
    known: Mapping[str, Curve], levels: Mapping[str, LevelLife], cache: CacheState, iterations: int
) -> Use:
    best = fastest(known, iterations)
    reach = {name: total_range(level, cache, iterations) for name, level in levels.items()}
    also = tuple(n for n, (low, _) in reach.items() if n != best and low <= reach[best][1])
    ranged = all(len(level.of(cache)) >= LEAST_LIVES for level in levels.values())
    return Use(iterations, best, known[best].total(iterations), also, ranged)


def _own_curve(one: Life, each: float) -> Curve:
    seconds = one.seconds
    return Curve(
        one.start + seconds.get("end", 0.0),
        seconds.get("first_iteration", 0.0),
        seconds.get("settling", 0.0),
        _settled_after(one),
        each,
    )


def _settled_after(one: Life) -> int:
    """Without an end of settling, what the first half of the iterations took extra is spread over
    it."""
    return one.settled_after or len(one.iterations) // 2


def _median(found: Spread | None) -> float:
    return found.median if found else 0.0
