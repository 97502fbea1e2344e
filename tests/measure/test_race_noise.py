"""Races under a shared machine's noise, in virtual time: what they say of workers that are known.

Each figure that is asserted is printed too: ``pytest -rP tests/measure/test_race_noise.py``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import numpy as np
import pytest

from golow.measure import words
from golow.measure.race import run_race
from golow.measure.rounds import Race
from support.plants.noise import Machine, ReplayedMachine, SyntheticMachine, VirtualWorker
from support.records.races import value_of, word_of

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


@pytest.mark.slow
@MACHINES
def test_equal_workers_are_not_called_different(machine: Callable[[int], Machine]) -> None:
    words = hundred_duels(machine, 1.0)
    assert words["same"] + words["unclear"] >= 95
    assert words["same"] >= 80  # and the measuring does not shirk


@pytest.mark.slow
@MACHINES
def test_five_percent_slower_is_found(machine: Callable[[int], Machine]) -> None:
    assert hundred_duels(machine, 1.05)["slower"] >= 95


@pytest.mark.slow
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


@pytest.mark.slow
def test_the_noise_catches_a_bad_design() -> None:
    """Negative control: on the same equal workers one after the other is mostly wrong."""
    wrong = np.array([abs(naive_ratio(seed) - 1) for seed in range(100)])
    ours = np.array([abs(value_of(duel(SyntheticMachine(s), seed=s)) - 1) for s in range(100)])
    print(f"more than 2% off: naive {(wrong > 0.02).sum()}, race {(ours > 0.02).sum()} of 100")
    print(f"farthest off: naive {wrong.max():.1%}, race {ours.max():.1%}")
    assert (wrong > 0.02).sum() >= 60
    assert (wrong > 0.05).sum() >= 30
    assert (ours > 0.02).sum() <= 2


@pytest.mark.slow
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


@pytest.mark.slow
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


@pytest.mark.slow
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


@pytest.mark.slow
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


@pytest.mark.parametrize(("limit", "rounds"), [(90, 5), (60, 5), (12, 1)])
def test_slow_workers_get_what_the_time_limit_allows(limit: int, rounds: int) -> None:
    """Up to twice as much, for the rounds that a word needs, if all can be had in that time;
    they take 100 seconds here."""
    machine = SyntheticMachine(1, contention=False)
    workers = [VirtualWorker(name, machine, seconds=3.0) for name in ("eager", "level")]
    race = run_race(workers, baseline="eager", seed=0, time_limit=limit, clock=machine)
    assert race.summary.stopped_because == "time limit"
    assert race.seconds < 2 * limit or len(race.rounds) == 1
    assert len(race.rounds) == rounds
    assert all(len(block.host_ns) == 1 for block in race.blocks["level"])
    assert (race.ratio("level") is None) == (rounds < words.LEAST_ROUNDS)
