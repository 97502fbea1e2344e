"""A race ends by the clock, whatever its workers do; in virtual time."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from golow.measure.race import run_race
from golow.measure.rounds import Race
from golow.measure.wall_time import LEAST_SECONDS, OVERTIME
from golow.records.comparison import Sample
from golow.records.errors import OutOfTime
from golow.worker.protocol import Challenge
from support.records.races import Clock, Scripted

TEN_MILLISECONDS = 10_000_000


class Slowing(Scripted):
    """A worker that is ``times`` slower between two times of the clock. It is given up on as a real
    one is."""

    def __init__(self, name: str, clock: Clock, slow: tuple[float, float], times: float) -> None:
        super().__init__(name, clock)
        self.slow, self.times = slow, times

    def time(
        self,
        iterations: int,
        warmup: int,
        cold: bool = False,
        challenge: Challenge | None = None,
        within: float | None = None,
    ) -> Sample:
        self.calls.append((self.name, iterations, warmup))
        began, each = self.clock.seconds, []
        for _ in range(iterations + warmup):
            is_slow = self.slow[0] <= self.clock.seconds < self.slow[1]
            each.append(round(TEN_MILLISECONDS * (self.times if is_slow else 1.0)))
            self.clock.seconds += each[-1] * 1e-9
            if within is not None and self.clock.seconds - began >= within:
                self.clock.seconds = began + within
                raise OutOfTime(self.name, "no answer")
        return Sample(host_ns=tuple(each[warmup:]), wait_share=0.0)


def race_of(clock: Clock, limit: float, *workers: Scripted) -> Race:
    return run_race(workers, baseline="eager", seed=1, time_limit=limit, target=0.0, clock=clock)


FOREVER = float("inf")


def test_a_block_that_does_not_end_ends_the_race_and_no_more_than_that() -> None:
    clock = Clock()
    workers = [Scripted("eager", clock), Slowing("a", clock, (4.0, FOREVER), 1e6)]
    race = race_of(clock, 8.0, *workers)
    assert race.cut is not None
    assert race.cut.level == "a"
    assert race.stopped_because == "time limit"
    assert clock.seconds == pytest.approx(OVERTIME * 8.0)
    assert not race.failures
    ratio = race.ratio("a")
    assert ratio is not None
    assert ratio.value == pytest.approx(1.0, rel=0.01)


def test_what_came_before_it_in_the_first_round_is_kept() -> None:
    """Of three levels the last in the order of the round does not end."""
    clock = Clock()
    begun = 3 * 0.5  # about the seconds of three calibrations
    workers = [Slowing(name, clock, (begun, FOREVER), 1e4) for name in ("eager", "a", "b")]
    race = race_of(clock, 8.0, *workers)
    assert race.cut is not None
    assert clock.seconds <= OVERTIME * 8.0 + 1e-6
    assert len(race.rounds) > 0
    assert race.cut.level not in race.rounds[-1]


def test_a_slow_model_is_timed_once_at_every_level() -> None:
    clock = Clock()
    workers = [Scripted(name, clock, nanoseconds=20_000_000_000) for name in ("eager", "a")]
    race = race_of(clock, 1.0, *workers)
    assert race.cut is None
    assert [set(blocks) for blocks in race.rounds] == [{"eager", "a"}]


@settings(deadline=None)
@given(
    limit=st.floats(0.0, 40.0),
    begins=st.floats(0.0, 60.0),
    lasts=st.floats(0.0, 60.0),
    times=st.floats(1.0, 1e5),
    levels=st.integers(1, 5),
    alone=st.booleans(),
)
def test_a_race_of_short_iterations_ends_in_time(
    limit: float, begins: float, lasts: float, times: float, levels: int, alone: bool
) -> None:
    """Whenever and however much its levels, or one of them, get slower after calibration."""
    clock = Clock()
    calibrated = 1.0 * levels  # seconds, generously
    spell = (calibrated + begins, calibrated + begins + lasts)
    names = ["eager", *(f"level {i}" for i in range(1, levels))]
    factors = [1.0 if alone and name == "eager" else times for name in names]
    workers = [
        Slowing(name, clock, spell, factor) for name, factor in zip(names, factors, strict=True)
    ]
    race = race_of(clock, limit, *workers)
    assert race.rounds
    assert clock.seconds <= max(OVERTIME * limit, LEAST_SECONDS) + 1e-6
