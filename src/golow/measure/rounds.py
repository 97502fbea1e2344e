"""The rounds of a race, and the conclusions from them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from golow.measure import stats
from golow.records.comparison import Block, Quantity, RaceSummary, Ratio
from golow.records.errors import OutOfTime, WorkerFailure

StopReason = Literal["interval", "time limit", "interrupted", "nothing to time"]
RoundsUsed = Literal["clean", "all"]


@dataclass(frozen=True, kw_only=True)
class Race:
    """The timed blocks, and the conclusions from them.

    against: the level that another one is compared with, by name; the baseline unless it is named.
    rounds: for every complete round the block of each level that took part. A worker that failed
    is missing from that round and all later ones; one that was refuted, from all rounds. cuts: the
    levels that the race had to leave in the middle of a block, by name, and why. They keep their
    earlier blocks, but their workers can only be closed. Others may lack a block of that round,
    too.
    """

    levels: tuple[str, ...]
    baseline: str
    seed: int
    target: float
    least_rounds: int
    against: Mapping[str, str] = field(default_factory=dict)
    rounds: tuple[Mapping[str, Block], ...] = ()
    failures: Mapping[str, WorkerFailure] = field(default_factory=dict)
    cuts: Mapping[str, OutOfTime] = field(default_factory=dict)
    stopped_because: StopReason = "nothing to time"
    seconds: float = 0.0

    @property
    def blocks(self) -> dict[str, tuple[Block, ...]]:
        """The raw blocks of every level, in the order of rounds."""
        return {
            level: tuple(blocks[level] for blocks in self.rounds if level in blocks)
            for level in self.levels
        }

    @property
    def usable(self) -> list[str]:
        """The levels that still race and whose workers owe no answer."""
        return [level for level in self.racing if level not in self.cuts]

    @property
    def summary(self) -> RaceSummary:
        """The record of the race."""
        return RaceSummary(
            rounds=len(self.rounds),
            seed=self.seed,
            stopped_because=self.stopped_because,
            interval_target=self.target,
            seconds=self.seconds,
            contended_share=_contended_share(self._all_blocks()),
        )

    def without(self, refuted: Mapping[str, str], kind: str) -> Race:
        """The race without any block of these levels, which have failed for these reasons."""
        if not refuted:
            return self
        failures = {name: WorkerFailure(kind, reason) for name, reason in refuted.items()}
        rounds = tuple(
            {name: block for name, block in blocks.items() if name not in refuted}
            for blocks in self.rounds
        )
        return replace(self, rounds=rounds, failures={**self.failures, **failures})

    def time(self, level: str) -> Quantity | None:
        """Seconds of an iteration with its interval; None if the level completed no round."""
        rounds = self._rounds_with(level)
        return stats.level_time(self._figures(level, rounds), self.seed) if rounds else None

    def ratio(self, level: str) -> Ratio | None:
        """Time relative to that of the level that it is compared with, in the same rounds.

        None for the baseline itself, with fewer than two common rounds, or if either worker
        failed: the cause may have distorted its last rounds.
        """
        return stats.ratio(*self.paired(level), self.seed)

    def paired(self, level: str) -> tuple[list[float], list[float]]:
        """Seconds per iteration of the level, and of the one that it is compared with, in each
        round of both; empty if they cannot be compared."""
        rounds = self._paired_rounds(level)
        return self._figures(level, rounds), self._figures(self._base(level), rounds)

    def difference(self, level: str) -> Quantity | None:
        """Seconds more than those of the level that it is compared with, in the same rounds; None
        if there is no ratio."""
        own, base = self.paired(level)
        return stats.difference(own, base, self.seed) if len(own) >= 2 else None

    def rounds_used(self, level: str) -> RoundsUsed:
        """State if the ratio uses only clean rounds, or all because too few were clean."""
        levels = (level, self._base(level)) if self._is_comparable(level) else (level,)
        used = self._rounds_with(*levels)
        return "clean" if all(_is_clean(blocks, *levels) for blocks in used) else "all"

    def contended_share(self, level: str) -> float:
        """Share of the level's blocks that stayed contended after all attempts."""
        return _contended_share(self.blocks[level])

    def throttled_share(self, level: str) -> float:
        """Share of the level's blocks that heat or power slowed down in every attempt."""
        return _share([block.throttled for block in self.blocks[level]])

    def has_enough_rounds(self) -> bool:
        """True if the race may stop on its intervals: `least_rounds` are done, and are clean.

        It waits for clean ones up to twice `least_rounds`, then accepts the others.
        """
        done = len(self.rounds)
        clean = all(self.rounds_used(level) == "clean" for level in self.racing)
        return done >= (self.least_rounds if clean else 2 * self.least_rounds)

    def widest_interval(self) -> float:
        """The widest relative interval of the levels still racing, which the race tries to narrow.

        It is that of a ratio, or of a time if there is nothing to compare (the baseline failed, or
        is alone).
        """
        racing = self.racing
        compared = [level for level in racing if level != self.baseline]
        if self.baseline in racing and compared:
            return max(stats.relative_width(self.ratio(level)) for level in compared)
        return max((stats.relative_width(self.time(level)) for level in racing), default=math.inf)

    @property
    def racing(self) -> list[str]:
        """The levels that have not failed."""
        return [level for level in self.levels if level not in self.failures]

    def _base(self, level: str) -> str:
        """The level that this one is compared with."""
        return self.against.get(level, self.baseline)

    def _is_comparable(self, level: str) -> bool:
        return level != self.baseline and not {level, self._base(level)} & self.failures.keys()

    def _paired_rounds(self, level: str) -> Sequence[Mapping[str, Block]]:
        return self._rounds_with(level, self._base(level)) if self._is_comparable(level) else ()

    def _rounds_with(self, *levels: str) -> Sequence[Mapping[str, Block]]:
        """The rounds in which all of these took part: the clean ones if there are enough.

        Contention affects levels unequally (one with more threads waits more), as do heat and
        power, so such a round is biased, not just noisy, and more of them do not help. Choosing
        rounds by their disturbance, never by their time, adds no bias. With too few clean rounds
        all are used, and `rounds_used` reports it.
        """
        together = [blocks for blocks in self.rounds if all(level in blocks for level in levels)]
        clean = [blocks for blocks in together if _is_clean(blocks, *levels)]
        return clean if len(clean) >= self.least_rounds else together

    def _figures(self, level: str, rounds: Sequence[Mapping[str, Block]]) -> list[float]:
        """Seconds per iteration of the level in each round, by the one clock of the race."""
        # On a GPU every level has device times and elsewhere none: `time_block` demands it.
        return [stats.block_figure(blocks[level].quoted_ns) for blocks in rounds]

    def _all_blocks(self) -> Iterator[Block]:
        return (block for blocks in self.rounds for block in blocks.values())


def _is_clean(blocks: Mapping[str, Block], *levels: str) -> bool:
    return not any(blocks[level].contended or blocks[level].throttled for level in levels)


def _contended_share(blocks: Iterable[Block]) -> float:
    return _share([block.contended for block in blocks])


def _share(marks: Sequence[bool]) -> float:
    return sum(marks) / len(marks) if marks else 0.0
