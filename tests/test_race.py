"""Races under a shared machine's noise, in virtual time, and what happens when one goes wrong.

Each figure that is asserted is printed too: ``pytest -rP tests/test_race.py``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from itertools import pairwise

import numpy as np
import pytest

from golow.measure import block as timing
from golow.measure import stats
from golow.measure.block import MOST_ATTEMPTS, warmup_iterations
from golow.measure.race import Race, calibrate, run_race
from golow.record import Sample, WorkerFailure
from noise import Machine, ReplayedMachine, SyntheticMachine, VirtualWorker

MACHINES = pytest.mark.parametrize("machine", [SyntheticMachine, ReplayedMachine])


def duel(
    machine: Machine,
    *,
    seconds: float = 0.02,
    factor: float = 1.0,
    pause: float = 0.0,
    target: float = 0.02,
    seed: int = 0,
) -> Race:
    """A race of ``eager`` against ``level``, which does so many times its work, and then pauses."""
    workers = [
        VirtualWorker("eager", machine, seconds=seconds, seed=seed),
        VirtualWorker("level", machine, seconds=seconds * factor, pause=pause, seed=seed),
    ]
    return run_race(
        workers, baseline="eager", seed=seed, target=target, time_limit=300, clock=machine
    )


def hundred_duels(machine: Callable[[int], Machine], factor: float) -> Counter[str]:
    """The words of 100 races, in each of which the machine and the workers are drawn anew."""
    races = [duel(machine(seed), factor=factor, seed=seed) for seed in range(100)]
    rounds = sorted(len(race.rounds) for race in races)
    widths = [race.widest_interval() for race in races]
    clean = sum(race.rounds_used("level") == "clean" for race in races)
    words = Counter(word_of(race) for race in races)
    print(
        f"{machine.__name__} x{factor}: {dict(words)}, rounds {rounds[50]} (most {rounds[-1]}), "
        f"interval {np.median(widths):.2%}, {np.median([race.seconds for race in races]):.1f} s, "
        f"{clean} on clean rounds alone"
    )
    return words


def word_of(race: Race) -> str:
    ratio = race.ratio("level")
    assert ratio is not None
    return ratio.word


def value_of(race: Race) -> float:
    ratio = race.ratio("level")
    assert ratio is not None
    return ratio.value


# ---------------------------------------------------------------- noise


@MACHINES
def test_equal_workers_are_not_called_different(machine: Callable[[int], Machine]) -> None:
    words = hundred_duels(machine, 1.0)
    assert words["same"] + words["unclear"] >= 95
    assert words["same"] >= 80  # and the measuring does not shirk


@MACHINES
def test_five_percent_slower_is_found(machine: Callable[[int], Machine]) -> None:
    assert hundred_duels(machine, 1.05)["slower"] >= 95


@MACHINES
def test_five_percent_faster_is_found(machine: Callable[[int], Machine]) -> None:
    assert hundred_duels(machine, 0.95)["faster"] >= 95


def naive_ratio(seed: int) -> float:
    """All of one, then all of the other, and the ratio of the means: how it must not be done."""
    machine, means = SyntheticMachine(seed), []
    for name in ("eager", "level"):
        worker = VirtualWorker(name, machine, seconds=0.02, seed=seed)
        blocks = [worker.time(iterations=8, warmup=2) for _ in range(20)]
        means.append(np.mean([block.host_ns for block in blocks]))
    return float(means[1] / means[0])


def test_the_noise_catches_a_bad_design() -> None:
    """Negative control: on the same equal workers one after the other is mostly wrong."""
    wrong = np.array([abs(naive_ratio(seed) - 1) for seed in range(100)])
    ours = np.array([abs(value_of(duel(SyntheticMachine(s), seed=s)) - 1) for s in range(100)])
    print(f"more than 2% off: naive {(wrong > 0.02).sum()}, race {(ours > 0.02).sum()} of 100")
    print(f"farthest off: naive {wrong.max():.1%}, race {ours.max():.1%}")
    assert (wrong > 0.02).sum() >= 60
    assert (wrong > 0.05).sum() >= 30
    assert (ours > 0.02).sum() <= 2


@pytest.mark.parametrize(("target", "least"), [(0.02, 85), (0.01, 95)])
def test_an_injected_pause_is_recovered(target: float, least: int) -> None:
    """10 ms in an iteration of 40 ms. The layout of two processes alone may be 4% of that."""
    pause, errors = 0.010, []
    for seed in range(100):
        race = duel(SyntheticMachine(seed), seconds=0.04, pause=pause, target=target, seed=seed)
        found = race.difference("level")
        assert found is not None
        errors.append(abs(found.value / pause - 1))
    recovered = sum(error < 0.05 for error in errors)
    print(f"target {target}: {recovered} of 100 within 5%, median error {np.median(errors):.1%}")
    assert recovered >= least


def test_drift_that_hits_all_does_not_move_the_ratio() -> None:
    moved = []
    for seed in range(30):
        still, drifting = (
            duel(
                SyntheticMachine(seed, drift=drift, contention=False),
                factor=0.75,
                target=0.01,
                seed=seed,
            )
            for drift in (0.0, 0.2)
        )
        moved.append(abs(value_of(drifting) / value_of(still) - 1))
    print(f"a drift of +-20% moves the ratio by {np.median(moved):.2%}, at most {max(moved):.2%}")
    assert max(moved) < 0.01


@pytest.mark.parametrize(("target", "least"), [(0.02, 44), (0.01, 47)])
def test_three_runs_agree(target: float, least: int) -> None:
    """Three runs, each on another stretch of the machine's time and with processes of its own."""
    spreads = []
    for triple in range(50):
        seeds = range(1000 + 3 * triple, 1003 + 3 * triple)
        found = [
            value_of(duel(SyntheticMachine(seed), factor=0.6, target=target, seed=seed))
            for seed in seeds
        ]
        spreads.append(max(found) / min(found) - 1)
    agree = sum(spread < 0.02 for spread in spreads)
    print(f"target {target}: {agree} of 50 triples within 2%, median {np.median(spreads):.2%}")
    assert agree >= least


@MACHINES
def test_intervals_cover_the_truth_in_spite_of_stopping(machine: Callable[[int], Machine]) -> None:
    covered = 0
    for seed in range(200):
        here = machine(seed)
        workers = [
            VirtualWorker("eager", here, seconds=0.02, seed=seed, twin=True),
            VirtualWorker("level", here, seconds=0.03, seed=seed, twin=True),
        ]
        race = run_race(workers, baseline="eager", seed=seed, time_limit=300, clock=here)
        ratio = race.ratio("level")
        assert ratio is not None
        covered += ratio.low <= 1.5 <= ratio.high
    print(f"{machine.__name__}: {covered / 2:.1f}% of the 95% intervals cover the true ratio")
    assert covered >= 0.85 * 200


@pytest.mark.parametrize(("limit", "rounds"), [(60, 5), (30, 2)])
def test_slow_workers_get_what_the_time_limit_allows(limit: int, rounds: int) -> None:
    """Up to twice as much, for the rounds that a word needs, if these can be had in that time."""
    machine = SyntheticMachine(1, contention=False)
    workers = [VirtualWorker(name, machine, seconds=3.0) for name in ("eager", "level")]
    race = run_race(workers, baseline="eager", seed=0, time_limit=limit, clock=machine)
    assert race.summary.stopped_because == "time limit"
    assert race.seconds < 2 * limit
    assert len(race.rounds) == rounds
    assert all(len(block.host_ns) == 1 for block in race.blocks["level"])
    assert rounds >= stats.LEAST_ROUNDS or word_of(race) == "unclear"


# ---------------------------------------------------------------- the sequence


class Scripted:
    """A worker whose every answer is given by a function of (its call's number, iterations).

    It notes what it was asked; its clock is shared by all workers of the script.
    """

    calls: list[tuple[str, int, int]]

    def __init__(
        self,
        name: str,
        clock: Clock,
        nanoseconds: int = 10_000_000,
        answer: Callable[[int, int], Sample] | None = None,
    ) -> None:
        self.name, self.clock, self.nanoseconds = name, clock, nanoseconds
        self.answer = answer or self.plain
        self.calls = []
        self.draw = np.random.default_rng([*name.encode()])

    def plain(self, call: int, iterations: int, wait_share: float | None = 0.0) -> Sample:
        # A spread of its own, so that the rounds and their ratios are not all alike.
        spread = self.draw.lognormal(0, 0.001)
        return Sample(host_ns=(int(self.nanoseconds * spread),) * iterations, wait_share=wait_share)

    def time(self, iterations: int, warmup: int, cold: bool = False) -> Sample:
        self.calls.append((self.name, iterations, warmup))
        sample = self.answer(len(self.calls), iterations)
        self.clock.seconds += (iterations + warmup) * self.nanoseconds * 1e-9
        return sample


class Clock:
    seconds = 0.0

    def __call__(self) -> float:
        return self.seconds


@pytest.fixture
def clock() -> Clock:
    return Clock()


def run(workers: Sequence[Scripted], clock: Clock, **settings: object) -> Race:
    defaults = {"baseline": "eager", "seed": 1, "time_limit": 60.0, "clock": clock}
    return run_race(workers, **(defaults | settings))  # type: ignore[arg-type]


def dies(worker: Scripted, at: int) -> Callable[[int, int], Sample]:
    """An answer like the plain one until the call of that number."""

    def answer(call: int, iterations: int) -> Sample:
        if call >= at:
            raise WorkerFailure("died", f"{worker.name} was killed")
        return worker.plain(call, iterations)

    return answer


def test_each_worker_once_a_round_in_random_order(clock: Clock) -> None:
    names = ("eager", "compile", "libtorch", "onednn")
    workers = [Scripted(name, clock) for name in names]
    race = run(workers, clock, least_rounds=60)
    assert race.summary.stopped_because == "interval"
    assert len(race.rounds) == 60
    orders = []
    for number, blocks in enumerate(race.rounds):
        assert set(blocks) == set(names)
        assert sorted(block.position for block in blocks.values()) == [0, 1, 2, 3]
        assert {block.round for block in blocks.values()} == {number}
        orders.append(tuple(sorted(blocks, key=lambda name: blocks[name].position)))
    assert len(set(orders)) > 15  # of 24
    positions = Counter((name, order.index(name)) for order in orders for name in names)
    assert len(positions) == 16
    assert max(positions.values()) < 30
    again = run([Scripted(name, clock) for name in names], clock, least_rounds=60)
    other = run([Scripted(name, clock) for name in names], clock, least_rounds=60, seed=2)
    assert [order_of(race) for race in (again, other)] == [order_of(race), order_of(other)]
    assert order_of(other) != order_of(race)


def order_of(race: Race) -> list[list[int]]:
    return [[blocks[name].position for name in race.levels] for blocks in race.rounds]


def test_blocks_begin_with_untimed_iterations_that_are_not_kept(clock: Clock) -> None:
    worker = Scripted("eager", clock)
    race = run([worker], clock, time_limit=5.0)
    blocks = worker.calls[-len(race.rounds) :]
    assert {(iterations, warmup) for _, iterations, warmup in blocks} == {(15, 3)}
    assert all(len(block.host_ns) == 15 for block in race.blocks["eager"])


def test_cold_iterations_are_not_in_the_samples() -> None:
    """The noise's blocks begin half as slow again; what is kept shows next to nothing of it."""
    machine = SyntheticMachine(0, drift=0, contention=False)
    race = run_race(
        [VirtualWorker("eager", machine, seconds=0.02)],
        baseline="eager",
        seed=0,
        time_limit=20,
        clock=machine,
    )
    first, last = (
        np.median([block.host_ns[place] for block in race.blocks["eager"]]) for place in (0, -1)
    )
    assert first / last == pytest.approx(1, abs=0.02)


@pytest.mark.parametrize(("iterations", "warmup"), [(1, 1), (5, 1), (6, 2), (15, 3), (1000, 200)])
def test_warmup_iterations(iterations: int, warmup: int) -> None:
    assert warmup_iterations(iterations) == warmup


@pytest.mark.parametrize(
    ("nanoseconds", "iterations"),
    [(10, 1000), (100_000, 1000), (1_000_000, 150), (10_000_000, 15), (2_000_000_000, 1)],
)
def test_calibration_fills_the_block(clock: Clock, nanoseconds: int, iterations: int) -> None:
    worker = Scripted("eager", clock, nanoseconds)
    assert calibrate(worker, 0.15) == iterations
    if iterations == 1:
        assert len(worker.calls) == 2  # slow workers are not asked for many


def test_calibration_does_not_believe_one_spike(clock: Clock) -> None:
    worker = Scripted("eager", clock, 5_000_000)

    def spike_first(call: int, iterations: int) -> Sample:
        slow = Sample(host_ns=(464_000_000,) * iterations)
        return slow if call == 1 else worker.plain(call, iterations)

    worker.answer = spike_first
    assert calibrate(worker, 0.15) == 30


def test_calibration_counts_the_devices_time(clock: Clock) -> None:
    """The host enqueues in 0.1 ms what takes the device 10."""
    worker = Scripted("eager", clock)
    worker.answer = lambda _, n: Sample(host_ns=(100_000,) * n, device_ns=(10_000_000,) * n)
    assert calibrate(worker, 0.15) == 15


def test_observer_sees_every_round(clock: Clock) -> None:
    seen: list[tuple[int, float, float, float]] = []
    workers = [Scripted("eager", clock), Scripted("level", clock)]
    race = run(workers, clock, observer=lambda *what: seen.append(what))
    assert [what[0] for what in seen] == list(range(1, len(race.rounds) + 1))
    assert all(before[1] < after[1] for before, after in pairwise(seen))
    assert {what[2] for what in seen} == {60.0}
    assert seen[0][3] == float("inf")
    assert seen[-1][3] == race.widest_interval() < 0.02


def test_time_limit_holds(clock: Clock) -> None:
    workers = [Scripted("eager", clock), Scripted("level", clock)]
    race = run(workers, clock, target=0.0, time_limit=10.0)
    assert race.summary.stopped_because == "time limit"
    assert 9 < race.summary.seconds <= 10


def test_one_round_is_always_had(clock: Clock) -> None:
    race = run([Scripted("eager", clock), Scripted("level", clock)], clock, time_limit=0.0)
    assert race.summary.stopped_because == "time limit"
    assert len(race.rounds) == 1
    assert race.ratio("level") is None
    assert race.difference("level") is None
    time = race.time("level")
    assert time is not None
    assert time.low is None


def test_nothing_to_time(clock: Clock) -> None:
    race = run([], clock)
    assert race.summary.stopped_because == "nothing to time"
    assert (race.rounds, race.blocks, race.summary.rounds) == ((), {}, 0)


def test_a_baseline_alone_is_timed(clock: Clock) -> None:
    race = run([Scripted("eager", clock)], clock)
    assert race.summary.stopped_because == "interval"
    assert race.time("eager") is not None
    assert race.ratio("eager") is None
    assert race.difference("eager") is None


def test_two_workers_of_one_name_are_refused(clock: Clock) -> None:
    with pytest.raises(ValueError, match="two workers of one name"):
        run([Scripted("eager", clock), Scripted("eager", clock)], clock)


# ---------------------------------------------------------------- contention


def contended_at(worker: Scripted, waits: dict[int, float | None]) -> Callable[[int, int], Sample]:
    """Calm but for the calls named."""
    return lambda call, iterations: worker.plain(call, iterations, waits.get(call, 0.0))


def first_block(worker: Scripted) -> int:
    """The number of the call with which its first block begins."""
    calibrate(worker, 0.15)
    calls = len(worker.calls)
    worker.calls.clear()
    return calls + 1


def test_a_contended_block_is_timed_again_until_clean(clock: Clock) -> None:
    worker = Scripted("eager", clock)
    first = first_block(worker)
    worker.answer = contended_at(worker, {first: 0.5})
    block = run([worker], clock).blocks["eager"][0]
    assert (block.attempts, block.contended, block.wait_share) == (2, False, 0.0)


def test_the_cleanest_attempt_is_kept_and_marked(
    clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(timing, "RETRY_SHARE", 10)  # only the attempts limit it
    worker = Scripted("eager", clock)
    first = first_block(worker)
    worker.answer = contended_at(worker, {first: 0.5, first + 1: 0.2, first + 2: 0.3})
    race = run([worker], clock)
    block = race.blocks["eager"][0]
    assert (block.attempts, block.contended, block.wait_share) == (3, True, 0.2)
    assert race.blocks["eager"][1].attempts == 1
    assert race.summary.contended_share == pytest.approx(1 / len(race.rounds))


def test_a_machine_that_is_never_calm_still_gets_its_rounds(clock: Clock) -> None:
    workers = [Scripted("eager", clock), Scripted("level", clock)]
    for worker in workers:
        worker.answer = partial(worker.plain, wait_share=0.4)
    race = run(workers, clock, target=0.0, time_limit=30.0)
    blocks = [block for blocks in race.rounds for block in blocks.values()]
    assert all(block.contended for block in blocks)
    assert max(block.attempts for block in blocks) <= MOST_ATTEMPTS
    assert sum(block.attempts for block in blocks) < 1.6 * len(blocks)
    assert race.summary.contended_share == 1
    assert race.rounds_used("level") == "all"
    assert race.contended_share("level") == 1


def test_clean_rounds_are_preferred(clock: Clock) -> None:
    """A level that contention makes three times slower in every other block."""
    workers = [Scripted("eager", clock), Scripted("level", clock)]

    def busy(call: int, iterations: int) -> Sample:
        if (call // 4) % 2:
            return workers[1].plain(call, iterations)
        return Sample(host_ns=(30_000_000,) * iterations, wait_share=0.7)

    workers[1].answer = busy
    race = run(workers, clock)
    assert race.contended_share("level") >= 0.2
    assert race.rounds_used("level") == "clean"
    assert value_of(race) == pytest.approx(1, abs=0.01)
    assert race.rounds_used("eager") == "clean"


def test_a_system_that_does_not_tell_is_not_contended(clock: Clock) -> None:
    worker = Scripted("eager", clock)
    worker.answer = partial(worker.plain, wait_share=None)
    race = run([worker], clock)
    assert {(b.wait_share, b.contended, b.attempts) for b in race.blocks["eager"]} == {
        (None, False, 1)
    }


# ---------------------------------------------------------------- clocks


def on_device(worker: Scripted, device_ns: int) -> Callable[[int, int], Sample]:
    def answer(call: int, iterations: int) -> Sample:
        device = (device_ns + call,) * iterations
        return Sample(host_ns=(worker.nanoseconds + call,) * iterations, device_ns=device)

    return answer


def test_device_time_is_quoted_if_every_level_has_it(clock: Clock) -> None:
    workers = [Scripted("eager", clock), Scripted("level", clock)]
    workers[0].answer = on_device(workers[0], 20_000_000)
    workers[1].answer = on_device(workers[1], 30_000_000)
    assert value_of(run(workers, clock)) == pytest.approx(1.5, rel=0.01)


def test_one_level_without_a_device_puts_all_on_the_hosts_clock(clock: Clock) -> None:
    workers = [Scripted("eager", clock), Scripted("level", clock)]
    workers[0].answer = on_device(workers[0], 20_000_000)
    assert value_of(run(workers, clock)) == pytest.approx(1, rel=0.01)


# ---------------------------------------------------------------- failures and interruption


def test_a_worker_that_dies_leaves_the_race_and_keeps_its_blocks(clock: Clock) -> None:
    workers = [Scripted(name, clock) for name in ("eager", "level", "mortal")]
    workers[2].answer = dies(workers[2], at=9)
    race = run(workers, clock)
    assert race.summary.stopped_because == "interval"
    assert race.failures.keys() == {"mortal"}
    assert race.failures["mortal"].kind == "died"
    assert 0 < len(race.blocks["mortal"]) < len(race.rounds) == len(race.blocks["level"])
    assert word_of(race) == "same"
    assert race.ratio("mortal") is None
    assert race.time("mortal") is not None


def test_a_baseline_that_dies_takes_the_ratios_with_it(clock: Clock) -> None:
    workers = [Scripted(name, clock) for name in ("eager", "level", "other")]
    workers[0].answer = dies(workers[0], at=12)
    race = run(workers, clock)
    assert race.summary.stopped_because == "interval"
    assert len(race.blocks["level"]) > len(race.blocks["eager"]) > 2
    assert race.ratio("level") is None
    assert race.difference("level") is None
    assert race.time("level") is not None
    assert race.rounds_used("level") == "clean"


def test_a_worker_that_never_answers_a_block(clock: Clock) -> None:
    workers = [Scripted(name, clock) for name in ("eager", "level", "stillborn")]
    workers[2].answer = dies(workers[2], at=1)
    race = run(workers, clock)
    assert race.blocks["stillborn"] == ()
    assert race.time("stillborn") is None
    assert race.ratio("stillborn") is None
    assert race.contended_share("stillborn") == 0
    assert word_of(race) == "same"


@pytest.mark.parametrize("at", [1, 9])
def test_all_workers_die(clock: Clock, at: int) -> None:
    workers = [Scripted(name, clock) for name in ("eager", "level")]
    for worker in workers:
        worker.answer = dies(worker, at)
    race = run(workers, clock)
    assert race.summary.stopped_because == "nothing to time"
    assert race.failures.keys() == {"eager", "level"}
    assert bool(race.rounds) == (at > 1)
    assert race.widest_interval() == float("inf")


def test_a_missing_baseline_leaves_times(clock: Clock) -> None:
    race = run([Scripted("level", clock)], clock)
    assert race.summary.stopped_because == "interval"
    assert race.ratio("level") is None
    assert race.time("level") is not None


@pytest.mark.parametrize(
    ("sample", "message"),
    [
        (Sample(host_ns=()), "answered 0 host and 0 device"),
        (Sample(host_ns=(1,) * 3), "answered 3 host and 0 device"),
        (Sample(host_ns=(1,), device_ns=(1, 2)), "answered 1 host and 2 device"),
        (Sample(host_ns=(-1,)), "negative time"),
    ],
)
def test_an_answer_that_was_not_asked_for_is_a_failure(
    clock: Clock, sample: Sample, message: str
) -> None:
    worker = Scripted("level", clock, answer=lambda _call, _iterations: sample)
    race = run([Scripted("eager", clock), worker], clock)
    assert race.failures["level"].kind == "protocol"
    assert message in race.failures["level"].message


@pytest.mark.parametrize("at", [1, 8, 9, 30])
def test_an_interrupt_keeps_the_complete_rounds(clock: Clock, at: int) -> None:
    workers = [Scripted(name, clock) for name in ("eager", "level", "other")]

    def interrupted(call: int, iterations: int) -> Sample:
        if call >= at:
            raise KeyboardInterrupt
        return workers[1].plain(call, iterations)

    workers[1].answer = interrupted
    race = run(workers, clock, target=0.0)
    assert race.summary.stopped_because == "interrupted"
    assert len(race.rounds) == max(0, at - first_block(Scripted("level", clock)))
    assert all(set(blocks) == {"eager", "level", "other"} for blocks in race.rounds)
    assert (race.ratio("level") is not None) == (len(race.rounds) >= 2)
