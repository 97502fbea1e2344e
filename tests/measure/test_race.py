"""The sequence of a race, in virtual time, and what happens when one goes wrong."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from itertools import pairwise

import numpy as np
import pytest

from golow.measure import block as timing
from golow.measure.block import MOST_ATTEMPTS, Setting, warmup_iterations
from golow.measure.gpu.nvml import Card
from golow.measure.race import calibrate, run_race
from golow.measure.rounds import Race
from golow.records.comparison import Sample
from golow.records.errors import WorkerFailure
from support.plants.noise import SyntheticMachine, VirtualWorker
from support.records.races import Clock, Scripted, value_of, word_of

# ---------------------------------------------------------------- the sequence


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


@pytest.mark.slow
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
    assert calibrate(worker, 0.15).iterations == iterations
    if iterations == 1:
        assert len(worker.calls) == 2  # slow workers are not asked for many


def test_calibration_does_not_believe_one_spike(clock: Clock) -> None:
    worker = Scripted("eager", clock, 5_000_000)

    def spike_first(call: int, iterations: int) -> Sample:
        slow = Sample(host_ns=(464_000_000,) * iterations)
        return slow if call == 1 else worker.plain(call, iterations)

    worker.answer = spike_first
    assert calibrate(worker, 0.15).iterations == 30


def test_calibration_counts_the_devices_time(clock: Clock) -> None:
    """The host enqueues in 0.1 ms what takes the device 10."""
    worker = Scripted("eager", clock)
    worker.answer = lambda _, n: Sample(host_ns=(100_000,) * n, device_ns=(10_000_000,) * n)
    with Card() as card:
        assert calibrate(worker, 0.15, Setting(card)).iterations == 15


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
    with pytest.raises(ValueError, match="two workers have the same name"):
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


def test_device_time_is_quoted_on_a_gpu(clock: Clock) -> None:
    workers = [Scripted("eager", clock), Scripted("level", clock)]
    workers[0].answer = on_device(workers[0], 20_000_000)
    workers[1].answer = on_device(workers[1], 30_000_000)
    with Card() as card:
        assert value_of(run(workers, clock, card=card)) == pytest.approx(1.5, rel=0.01)


def test_there_is_no_device_time_without_a_gpu(clock: Clock) -> None:
    """Neither of the two figures is believed: one would be verified and the other one quoted."""
    workers = [Scripted("eager", clock), Scripted("level", clock)]
    workers[1].answer = on_device(workers[1], 20_000_000)
    race = run(workers, clock)
    assert "it has device_ns" in race.failures["level"].message
    assert race.time("level") is None


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
        (Sample(host_ns=()), "the answer has 0 host and 0 device"),
        (Sample(host_ns=(1,) * 3), "the answer has 3 host and 0 device"),
        (Sample(host_ns=(1,), device_ns=(1, 2)), "the answer has 1 host and 2 device"),
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
