"""A race: several workers timed in turn, round by round, until their ratios are known well enough.

`run_race` is the whole sequence; the rest of the file are its parts. It only calls ``worker.time``,
which blocks until the worker answers: a parent that polls meanwhile takes a core from what it
measures.
"""

from __future__ import annotations

import math
import random
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Protocol

from golow.measure import two_clocks, words
from golow.measure.block import (
    ON_CPU,
    Committed,
    Retries,
    Setting,
    Worker,
    challenge_nobody,
    clean_block,
    time_block,
)
from golow.measure.gpu.nvml import Card
from golow.measure.rounds import Race, StopReason
from golow.measure.wall_time import Plan, WallTime
from golow.records.comparison import Block, Sample
from golow.records.errors import OutOfTime, WorkerFailure
from golow.worker.protocol import Challenge

LEAST_ROUNDS = 10
"""Rounds before a race may stop on its interval: the first ones are too often narrow by luck."""

BLOCK_SECONDS = 0.15
"""Timed seconds of a block."""

AROUND_A_BLOCK = 2
"""A block's whole time over its timed seconds, with its warm-up and the pause after it."""

CHECK_EVERY = 5
"""Rounds between two looks at the intervals. Each look is one more chance to stop on an interval
that is narrow by luck; ``stats.py`` states what that costs."""

MOST_ITERATIONS = 1000
"""Most iterations of a block. The record keeps every one, and a median gains nothing from more."""

MOST_WALL_SECONDS = 1.5
"""Seconds that a block may take by golow's clock: one of a worker that reports too little of
its time would take a minute, and end the race before its clock is refuted."""

CALIBRATION_SHARE = 1 / 3
"""Share of the time limit after which levels are calibrated with the fewest probes: on busy cores
all of them take longer than the race may."""

_PROBES = 4
_PROBE_GROWTH = 8
_SECONDS = 1e-9

Observer = Callable[[int, float, float, float], None]
"""Called after each round with the rounds done, the seconds so far, the time limit in seconds, and
the widest interval at the last look (relative full width; infinite before the first)."""


class Proof(Protocol):
    """Proves that the timed iterations computed what they should."""

    def begin_round(self, number: int) -> None:
        """A round begins."""

    def challenge(self, attempt: int) -> Challenge | None:
        """The challenge for an attempt at a block of this round, from 0."""

    def may_end(self, found: Mapping[str, Sequence[Block]]) -> bool:
        """True if the race may end with this round; if not, it may with one of the next two. found:
        the blocks of the levels that can still be timed."""

    def judge(
        self, found: Mapping[str, Committed], evaluate: Callable[[Challenge], float | None]
    ) -> Mapping[str, str]:
        """Why levels are refuted by the results of this round, by name. evaluate: the baseline's
        result of one iteration with a challenge."""

    def unmoved(self, name: str) -> str:
        """Why the level is refuted by the results of all rounds; empty if it is not."""


def run_race(
    workers: Sequence[Worker],
    *,
    baseline: str,
    seed: int,
    time_limit: float,
    target: float = 0.02,
    block_seconds: float = BLOCK_SECONDS,
    least_rounds: int = LEAST_ROUNDS,
    necessary: int = words.LEAST_ROUNDS,
    against: Mapping[str, str] | None = None,
    card: Card | None = None,
    cold: bool = False,
    proof: Proof | None = None,
    weights: int = 0,
    threads: int | None = None,
    observer: Observer | None = None,
    clock: Callable[[], float] = time.monotonic,
) -> Race:
    """Time the workers in turn until every ratio to the baseline is known within the target.

    target: relative full width ((high - low) / value) that each ratio's 95% interval must reach.
    time_limit: seconds in total, calibration included. No round starts that would probably end
    after it, except the first, one that the proof needs, and the rounds that any conclusion needs
    if all of them end in their time. The race ends by `WallTime` whatever happens, in the middle of
    a block if need be (``cuts``); the other levels then run the rounds that the proof needs.
    block_seconds: timed seconds of a block, fewer if the limit leaves no room for enough rounds.
    least_rounds: clean rounds before the race may stop on its intervals. necessary: rounds without
    which there is no conclusion; the limit is exceeded for them. against: the worker that another
    one is compared with, by name; the baseline unless it is named. card: the GPU on which the
    workers run, None on a CPU; with a GPU they must return device times, and its state is read
    after each block. cold: the GPU's L2 is emptied before each timed iteration. proof: proves that
    what is timed is what the check looked at. weights: bytes that a worker writes when the proof
    lets it begin again. threads: that each worker may use; None if it is not checked.

    A worker that raises WorkerFailure leaves the race and is listed in ``failures``; the time until
    it was found out does not count against the limit. A worker that the proof or the two clocks
    refute has no times. A KeyboardInterrupt ends the race with all complete rounds; the caller must
    raise it again.
    """
    started = clock()
    least_rounds = max(least_rounds, necessary)
    # Short races have short blocks: with few rounds no interval allows a conclusion.
    fitting = time_limit / max(1, AROUND_A_BLOCK * least_rounds * len(workers))
    block_seconds = min(block_seconds, fitting)
    order = random.Random(seed)  # noqa: S311 - an order of rounds, not a secret
    race = Race(
        levels=_names(workers),
        baseline=baseline,
        against=against or {},
        seed=seed,
        target=target,
        least_rounds=least_rounds,
    )
    retries, setting = (
        Retries(clock, started, started + time_limit),
        Setting(card, cold, weights, threads),
    )
    lost = 0.0  # seconds that failures took
    widest = math.inf
    reason: StopReason = "nothing to time"
    try:
        hurry = partial(_is_later, clock, started + CALIBRATION_SHARE * time_limit)
        plans, failures = _calibrate_all(workers, block_seconds, setting, hurry)
        wall = WallTime(clock, started, time_limit)
        race = replace(race, failures=failures)
        calibrated = clock()
        lost += calibrated - started if failures else 0.0
        before_rounds = lost
        while racing := [worker for worker in workers if worker.name in race.usable]:
            order.shuffle(racing)
            began, before = clock(), race
            must = not race.rounds or reason != "nothing to time"
            race = _run_round(race, racing, plans, retries, setting, proof, wall, must)
            if len(race.failures) > len(before.failures):
                lost += clock() - began
            if not race.rounds:
                if race.cuts:
                    reason = "time limit"
                    break
                continue

            rounds, seconds = len(race.rounds), clock() - started - lost
            look = rounds % CHECK_EVERY == 0
            widest = race.widest_interval() if look else widest
            if observer is not None:
                observer(rounds, seconds, time_limit, widest)
            a_round = (clock() - calibrated - lost + before_rounds) / rounds
            if look and widest < target and race.has_enough_rounds():
                reason = "interval"
            elif (
                wall.is_over
                or not _is_whole(race, before)
                or not _may_go_on(
                    rounds, necessary, seconds, a_round, time_limit, wall.for_conclusion
                )
            ):
                reason = "time limit"
            if reason != "nothing to time" and _may_end(race, proof):
                break
    except KeyboardInterrupt:
        reason = "interrupted"
    race = _without_refuted(race, race.racing, setting)
    if proof is not None:
        unmoved = {name: proof.unmoved(name) for name in race.racing}
        race = race.without({name: said for name, said in unmoved.items() if said}, "differs")
    return replace(race, stopped_because=reason, seconds=clock() - started)


def _run_round(
    race: Race,
    racing: Sequence[Worker],
    plans: Mapping[str, Plan],
    retries: Retries,
    setting: Setting,
    proof: Proof | None,
    wall: WallTime,
    must: bool,
) -> Race:
    """The race with one more round, in which the workers are timed in this order. A round of
    failures alone is none. must: the round is needed; it may end after the race should. Another one
    may lack blocks for which there was no time."""
    number, failures, earlier = len(race.rounds), dict(race.failures), race.blocks
    if proof is not None:
        proof.begin_round(number)
    challenger = challenge_nobody if proof is None else proof.challenge
    blocks: dict[str, Block] = {}
    found: dict[str, Committed] = {}
    for position, worker in enumerate(racing):
        plan = plans[worker.name]
        longest = max([plan.longest, *(b.wall_ns * _SECONDS for b in earlier[worker.name])])
        if not (must or wall.has_room(plan, longest)):
            break
        patience = partial(wall.left, plan, longest, must)
        try:
            block, found[worker.name] = clean_block(
                worker, plan.iterations, retries, setting, number, position, challenger, patience
            )
        except WorkerFailure as failure:
            failures[worker.name] = failure
        except OutOfTime as cut:
            race = replace(race, cuts={**race.cuts, worker.name: cut})
            if not must:
                break
        else:
            blocks[worker.name] = block
    if blocks:
        race = replace(race, rounds=(*race.rounds, blocks))
    race = replace(race, failures=failures)
    if proof is not None and found:
        baseline = next((w for w in racing if w.name == race.baseline), None)
        race = race.without(proof.judge(found, _evaluator(baseline, race)), "differs")
    many = [name for name in blocks if len(race.blocks[name]) >= two_clocks.LEAST_BLOCKS]
    return _without_refuted(race, many, setting)


def _without_refuted(race: Race, names: Sequence[str], setting: Setting) -> Race:
    """The race without those of these levels whose times cannot be true."""
    if setting.cold:  # the emptying of a cache is not in the worker's times
        return race
    refuted = {}
    for name in names:
        blocks = race.blocks.get(name, ())
        trusted = () if name == race.baseline else race.blocks.get(race.baseline, ())
        said = two_clocks.refute(blocks, trusted)
        said = said or two_clocks.refute_busy(blocks, setting.threads, trusted)
        if said:
            refuted[name] = said
    return race.without(refuted, "clock")


def _evaluator(baseline: Worker | None, race: Race) -> Callable[[Challenge], float | None]:
    """Makes the baseline run one iteration; None if it cannot."""

    def evaluate(challenge: Challenge) -> float | None:
        if baseline is None or baseline.name not in race.usable:
            return None
        try:
            return baseline.time(1, 0, False, challenge).results[0]
        except WorkerFailure:
            return None  # the next round finds out

    return evaluate


def _names(workers: Sequence[Worker]) -> tuple[str, ...]:
    levels = tuple(worker.name for worker in workers)
    if len(set(levels)) < len(levels):
        raise ValueError(f"two workers have the same name: {', '.join(levels)}")
    return levels


def _is_whole(race: Race, before: Race) -> bool:
    """True if all levels that can still be timed have a block of the round that was run; else there
    was no time for it."""
    timed = {name for blocks in race.rounds[len(before.rounds) :] for name in blocks}
    return timed >= set(race.usable)


def _may_end(race: Race, proof: Proof | None) -> bool:
    blocks = race.blocks
    return proof is None or proof.may_end({name: blocks[name] for name in race.usable})


def _may_go_on(
    rounds: int,
    necessary: int,
    seconds: float,
    a_round: float,
    time_limit: float,
    for_conclusion: float,
) -> bool:
    """True if one more round ends within the limit, or all missing rounds within the seconds that a
    conclusion may take."""
    missing = necessary - rounds
    in_time = seconds + a_round <= time_limit
    return in_time or (missing > 0 and seconds + missing * a_round <= for_conclusion)


# ---------------------------------------------------------------- length of a block


def _is_later(clock: Callable[[], float], moment: float) -> bool:
    return clock() > moment


def _calibrate_all(
    workers: Sequence[Worker],
    block_seconds: float,
    setting: Setting,
    hurry: Callable[[], bool],
) -> tuple[dict[str, Plan], dict[str, WorkerFailure]]:
    """The plans by level, and the failures of workers. hurry: true once there is no time for more
    than the fewest probes."""
    plans: dict[str, Plan] = {}
    failures: dict[str, WorkerFailure] = {}
    for worker in workers:
        try:
            plans[worker.name] = calibrate(worker, block_seconds, setting, hurry)
        except WorkerFailure as failure:
            failures[worker.name] = failure
    return plans, failures


def calibrate(
    worker: Worker,
    block_seconds: float,
    setting: Setting = ON_CPU,
    hurry: Callable[[], bool] = lambda: False,
) -> Plan:
    """The iterations that fill a block of about that many seconds: 1 to ``MOST_ITERATIONS``.

    Probes grow from one iteration, so that slow workers run few. The fastest iteration counts, and
    a single one is never trusted: a spike from 5 ms to 464 ms would leave the worker with blocks of
    one iteration for the whole race.
    """
    fastest, iterations, wanted, passed = math.inf, 1, 1, 0.0
    for probe in range(_PROBES):
        warmup = 1 if probe == 0 else 0
        sample = time_block(worker, iterations, warmup, setting)
        fastest = min(fastest, _fastest_iteration(sample))
        most, passed = MOST_ITERATIONS, sample.wall_ns * _SECONDS / (iterations + warmup)
        if passed:
            most = min(most, max(1, round(MOST_WALL_SECONDS / passed)))
        wanted = min(max(round(block_seconds / fastest), 1), most)
        if probe > 0 and (wanted <= iterations or hurry()):
            break
        iterations = min(wanted, _PROBE_GROWTH * iterations)
    return Plan(wanted, fastest, passed)


def _fastest_iteration(sample: Sample) -> float:
    """Seconds, never 0. On a device the host only enqueues: the slower of the two counts."""
    return max(min(sample.host_ns), min(sample.device_ns, default=0), 1) * _SECONDS
