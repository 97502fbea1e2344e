"""A race: several workers timed in turn, round by round, until their ratios are known well enough.

`run_race` is the whole sequence; the rest of the file are its parts. It only calls ``worker.time``,
which blocks until the worker answers: a parent that polls meanwhile takes a core from what it
measures.
"""

from __future__ import annotations

import math
import random
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from golow.measure import stats
from golow.measure.block import ON_CPU, Retries, Setting, Worker, clean_block, time_block
from golow.measure.nvml import Card
from golow.record import Block, Quantity, RaceSummary, Ratio, Sample, WorkerFailure

LEAST_ROUNDS = 10
"""Rounds before a race may stop on its interval: the first ones are too often narrow by luck."""

AROUND_A_BLOCK = 2
"""A block's whole time over its timed seconds, with its warm-up and the pause after it."""

OVERTIME = 5
"""How many times its limit a race may take for the rounds that any conclusion needs."""

CHECK_EVERY = 5
"""Rounds between two looks at the intervals. Each look is one more chance to stop on an interval
that is narrow by luck; ``stats.py`` says what that costs."""

MOST_ITERATIONS = 1000
"""Most iterations of a block. The record keeps every one, and a median gains nothing from more."""

_PROBES = 4
_PROBE_GROWTH = 8
_SECONDS = 1e-9

StopReason = Literal["interval", "time limit", "interrupted", "nothing to time"]
RoundsUsed = Literal["clean", "all"]

Observer = Callable[[int, float, float, float], None]
"""Called after each round with the rounds done, the seconds so far, the time limit in seconds, and
the widest interval at the last look (relative full width; infinite before the first)."""


@dataclass(frozen=True, kw_only=True)
class Race:
    """The timed blocks, and the conclusions from them.

    rounds: for every complete round the block of each level that took part. A worker that failed
    is missing from that round and all later ones.
    """

    levels: tuple[str, ...]
    baseline: str
    seed: int
    target: float
    least_rounds: int
    rounds: tuple[Mapping[str, Block], ...] = ()
    failures: Mapping[str, WorkerFailure] = field(default_factory=dict)
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

    def time(self, level: str) -> Quantity | None:
        """Seconds of an iteration with its interval; None if the level completed no round."""
        rounds = self._rounds_with(level)
        return stats.level_time(self._figures(level, rounds), self.seed) if rounds else None

    def ratio(self, level: str) -> Ratio | None:
        """Time relative to the baseline's in the same rounds.

        None for the baseline itself, with fewer than two common rounds, or if either worker
        failed: the cause may have distorted its last rounds.
        """
        rounds = self._paired_rounds(level)
        figures = self._figures(level, rounds), self._figures(self.baseline, rounds)
        return stats.ratio(*figures, self.seed)

    def difference(self, level: str) -> Quantity | None:
        """Seconds more than the baseline's in the same rounds; None if there is no ratio."""
        rounds = self._paired_rounds(level)
        if len(rounds) < 2:
            return None
        figures = self._figures(level, rounds), self._figures(self.baseline, rounds)
        return stats.difference(*figures, self.seed)

    def rounds_used(self, level: str) -> RoundsUsed:
        """Whether the ratio uses only clean rounds, or all because too few were clean."""
        levels = (level, self.baseline) if self._is_comparable(level) else (level,)
        used = self._rounds_with(*levels)
        return "clean" if all(_is_clean(blocks, *levels) for blocks in used) else "all"

    def contended_share(self, level: str) -> float:
        """Share of the level's blocks that stayed contended after all attempts."""
        return _contended_share(self.blocks[level])

    def throttled_share(self, level: str) -> float:
        """Share of the level's blocks that heat or power slowed down in every attempt."""
        return _share([block.throttled for block in self.blocks[level]])

    def has_enough_rounds(self) -> bool:
        """Whether the race may stop on its intervals: `least_rounds` are done, and are clean.

        It waits for clean ones up to twice `least_rounds`, then accepts the others.
        """
        done = len(self.rounds)
        clean = all(self.rounds_used(level) == "clean" for level in self._racing())
        return done >= (self.least_rounds if clean else 2 * self.least_rounds)

    def widest_interval(self) -> float:
        """The widest relative interval of the levels still racing, which the race tries to narrow.

        It is that of a ratio, or of a time if there is nothing to compare (the baseline failed, or
        is alone).
        """
        racing = self._racing()
        compared = [level for level in racing if level != self.baseline]
        if self.baseline in racing and compared:
            return max(stats.relative_width(self.ratio(level)) for level in compared)
        return max((stats.relative_width(self.time(level)) for level in racing), default=math.inf)

    def _racing(self) -> list[str]:
        return [level for level in self.levels if level not in self.failures]

    def _is_comparable(self, level: str) -> bool:
        return level != self.baseline and not {level, self.baseline} & self.failures.keys()

    def _paired_rounds(self, level: str) -> Sequence[Mapping[str, Block]]:
        return self._rounds_with(level, self.baseline) if self._is_comparable(level) else ()

    def _rounds_with(self, *levels: str) -> Sequence[Mapping[str, Block]]:
        """The rounds in which all of these took part: the clean ones if there are enough.

        Contention affects levels unequally (one with more threads waits more), as do heat and
        power, so such a round is biased, not just noisy, and more of them do not help. Choosing
        rounds by their disturbance, never by their time, adds no bias. With too few clean rounds
        all are used, and `rounds_used` says so.
        """
        together = [blocks for blocks in self.rounds if all(level in blocks for level in levels)]
        clean = [blocks for blocks in together if _is_clean(blocks, *levels)]
        return clean if len(clean) >= self.least_rounds else together

    def _figures(self, level: str, rounds: Sequence[Mapping[str, Block]]) -> list[float]:
        """Seconds per iteration of the level in each round, by the one clock of the race."""
        # Device time only if every level has it: two levels are never timed by different clocks.
        on_device = all(block.device_ns for block in self._all_blocks())
        blocks = [blocks[level] for blocks in rounds]
        return [
            stats.block_figure(block.device_ns if on_device else block.host_ns) for block in blocks
        ]

    def _all_blocks(self) -> Iterator[Block]:
        return (block for blocks in self.rounds for block in blocks.values())


def run_race(
    workers: Sequence[Worker],
    *,
    baseline: str,
    seed: int,
    time_limit: float,
    target: float = 0.02,
    block_seconds: float = 0.15,
    least_rounds: int = LEAST_ROUNDS,
    card: Card | None = None,
    cold: bool = False,
    observer: Observer | None = None,
    clock: Callable[[], float] = time.monotonic,
) -> Race:
    """Time the workers in turn until every ratio to the baseline is known within the target.

    target: relative full width ((high - low) / value) that each ratio's 95% interval must reach.
    time_limit: seconds in total, calibration included. No round starts that would probably end
    after it, except the first, and the rounds that any conclusion needs if all of them end within
    `OVERTIME` of it. block_seconds: timed seconds of a block, fewer if the limit leaves no room for
    enough rounds. least_rounds: clean rounds before the race may stop on its intervals. card: the
    GPU on which the workers run, None on a CPU; with a GPU they must return device times, and its
    state is read after each block. cold: the GPU's L2 is emptied before each timed iteration.

    A worker that raises WorkerFailure leaves the race and is listed in ``failures``. A
    KeyboardInterrupt ends the race with all complete rounds; the caller must raise it again.
    """
    started = clock()
    # Short races have short blocks: with few rounds no interval allows a conclusion.
    fitting = time_limit / max(1, AROUND_A_BLOCK * least_rounds * len(workers))
    block_seconds = min(block_seconds, fitting)
    order = random.Random(seed)  # noqa: S311 - an order of rounds, not a secret
    race = _not_yet_run(workers, baseline, seed, target, least_rounds)
    retries, setting = Retries(clock, started, started + time_limit), Setting(card, cold)
    failures: dict[str, WorkerFailure] = {}
    widest = math.inf
    try:
        iterations = _calibrate_all(workers, block_seconds, setting, failures)
        calibrated = clock()
        while racing := [worker for worker in workers if worker.name not in failures]:
            order.shuffle(racing)
            blocks: dict[str, Block] = {}
            for position, worker in enumerate(racing):
                count, number = iterations[worker.name], len(race.rounds)
                try:
                    block = clean_block(worker, count, retries, setting, number, position)
                except WorkerFailure as failure:
                    failures[worker.name] = failure
                else:
                    blocks[worker.name] = block
            if not blocks:
                continue
            race = replace(race, rounds=(*race.rounds, blocks), failures=dict(failures))

            rounds, seconds = len(race.rounds), clock() - started
            look = rounds % CHECK_EVERY == 0
            widest = race.widest_interval() if look else widest
            if observer is not None:
                observer(rounds, seconds, time_limit, widest)
            if look and widest < target and race.has_enough_rounds():
                reason: StopReason = "interval"
                break
            if not _may_go_on(rounds, seconds, (clock() - calibrated) / rounds, time_limit):
                reason = "time limit"
                break
        else:
            reason = "nothing to time"
    except KeyboardInterrupt:
        reason = "interrupted"
    return replace(race, failures=failures, stopped_because=reason, seconds=clock() - started)


def _not_yet_run(
    workers: Sequence[Worker], baseline: str, seed: int, target: float, least_rounds: int
) -> Race:
    levels = tuple(worker.name for worker in workers)
    if len(set(levels)) < len(levels):
        raise ValueError(f"two workers have the same name: {', '.join(levels)}")
    return Race(
        levels=levels, baseline=baseline, seed=seed, target=target, least_rounds=least_rounds
    )


def _may_go_on(rounds: int, seconds: float, a_round: float, time_limit: float) -> bool:
    """Whether one more round ends within the limit, or all missing rounds within `OVERTIME`."""
    missing = stats.LEAST_ROUNDS - rounds
    in_time = seconds + a_round <= time_limit
    return in_time or (missing > 0 and seconds + missing * a_round <= OVERTIME * time_limit)


# ---------------------------------------------------------------- length of a block


def _calibrate_all(
    workers: Sequence[Worker],
    block_seconds: float,
    setting: Setting,
    failures: dict[str, WorkerFailure],
) -> dict[str, int]:
    """Iterations of a block by level; a worker that fails here is added to ``failures``."""
    iterations: dict[str, int] = {}
    for worker in workers:
        try:
            iterations[worker.name] = calibrate(worker, block_seconds, setting)
        except WorkerFailure as failure:
            failures[worker.name] = failure
    return iterations


def calibrate(worker: Worker, block_seconds: float, setting: Setting = ON_CPU) -> int:
    """Iterations that fill a block of about that many seconds: 1 to ``MOST_ITERATIONS``.

    Probes grow from one iteration, so that slow workers run few. The fastest iteration counts, and
    a single one is never trusted: a spike from 5 ms to 464 ms would leave the worker with blocks of
    one iteration for the whole race.
    """
    fastest, iterations, wanted = math.inf, 1, 1
    for probe in range(_PROBES):
        sample = time_block(worker, iterations, 1 if probe == 0 else 0, setting)
        fastest = min(fastest, _fastest_iteration(sample))
        wanted = min(max(round(block_seconds / fastest), 1), MOST_ITERATIONS)
        if probe > 0 and wanted <= iterations:
            break
        iterations = min(wanted, _PROBE_GROWTH * iterations)
    return wanted


def _fastest_iteration(sample: Sample) -> float:
    """Seconds, never 0. On a device the host only enqueues: the slower of the two counts."""
    return max(min(sample.host_ns), min(sample.device_ns, default=0), 1) * _SECONDS


def _is_clean(blocks: Mapping[str, Block], *levels: str) -> bool:
    return not any(blocks[level].contended or blocks[level].throttled for level in levels)


def _contended_share(blocks: Iterable[Block]) -> float:
    return _share([block.contended for block in blocks])


def _share(marks: Sequence[bool]) -> float:
    return sum(marks) / len(marks) if marks else 0.0
