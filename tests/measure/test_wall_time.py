"""A race ends by the clock, whatever its workers do; in virtual time."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from golow.measure.block import Committed
from golow.measure.race import calibrate, run_race
from golow.measure.rounds import Race
from golow.measure.wall_time import LEAST_SECONDS, OVERTIME, Plan, WallTime
from golow.records.comparison import Block, Sample
from golow.records.errors import OutOfTime
from golow.worker.protocol import Challenge
from support.records.races import Clock, Scripted

TEN_MILLISECONDS = 10_000_000


class Slowing(Scripted):
    """A worker that is ``times`` slower between two times of the clock. It is given up on as a real
    one is."""

    longest = 0.0  # seconds of a block that ended

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
        self.longest = max(self.longest, self.clock.seconds - began)
        # All alike, so that its clock is not refuted.
        mean = round(sum(each) / len(each))
        return Sample(host_ns=(mean,) * iterations, wait_share=0.0, wall_ns=sum(each))


def race_of(clock: Clock, limit: float, *workers: Scripted) -> Race:
    return run_race(workers, baseline="eager", seed=1, time_limit=limit, target=0.0, clock=clock)


FOREVER = float("inf")


def test_a_block_that_does_not_end_ends_the_race_and_no_more_than_that() -> None:
    clock = Clock()
    workers = [Scripted("eager", clock), Slowing("a", clock, (4.0, FOREVER), 1e6)]
    race = race_of(clock, 8.0, *workers)
    assert list(race.cuts) == ["a"]
    assert race.stopped_because == "time limit"
    assert clock.seconds == pytest.approx(OVERTIME * 8.0)
    assert not race.failures
    ratio = race.ratio("a")
    assert ratio is not None
    assert ratio.value == pytest.approx(1.0, rel=0.01)


def test_a_block_that_began_in_time_may_end_after_it() -> None:
    clock = Clock()
    wall, plan = WallTime(clock, 0.0, 10.0), Plan(10, 0.05)
    clock.seconds = 18.0
    assert wall.has_room(plan, longest=1.9)
    assert not wall.has_room(plan, longest=2.1)
    assert wall.left(plan, longest=1.9, must=False) == pytest.approx(2 * 1.9)
    assert wall.left(plan, longest=0.0, must=False) == pytest.approx(2.0)
    assert wall.left(plan, longest=0.0, must=True) == pytest.approx(4 * 12 * 0.05)


def test_the_rounds_have_the_time_limit_however_long_calibration_took() -> None:
    """On busy cores it then makes the fewest probes, and a block's plan is what passed for them."""
    clock = Clock()
    worker = Slowing("eager", clock, (0.0, FOREVER), 10.0)
    plan = calibrate(worker, 100.0, hurry=lambda: True)
    assert len(worker.calls) == 2
    assert plan.longest == pytest.approx(10 * 0.01 * 1.2 * plan.iterations, rel=0.1)
    clock.seconds = 30.0
    assert WallTime(clock, 0.0, 12.0).left(plan, longest=0.0, must=False) == pytest.approx(12.0)


class Wanting:
    """A proof that needs one more round than the race."""

    def __init__(self) -> None:
        self.asked = 0

    def begin_round(self, number: int) -> None:
        """There is nothing to begin."""

    def challenge(self, attempt: int) -> Challenge | None:
        return None

    def may_end(self, found: Mapping[str, Sequence[Block]]) -> bool:
        self.asked += 1
        return self.asked > 1

    def judge(
        self, found: Mapping[str, Committed], evaluate: Callable[[Challenge], float | None]
    ) -> Mapping[str, str]:
        return {}

    def unmoved(self, name: str) -> str:
        return ""


def test_the_others_run_the_rounds_that_the_proof_needs_when_one_does_not_end() -> None:
    clock = Clock()
    workers = [
        Slowing("a", clock, (4.0, FOREVER), 1e6),
        *(Scripted(n, clock) for n in ("eager", "b")),
    ]
    race = run_race(
        workers, baseline="eager", seed=1, time_limit=8.0, target=0.0, clock=clock, proof=Wanting()
    )
    assert list(race.cuts) == ["a"]
    assert race.rounds[-1].keys() == {"eager", "b"}
    assert clock.seconds < OVERTIME * 8.0 + 2.0


class Unending(Scripted):
    """Answers while it is calibrated, and never in the race."""

    def time(
        self,
        iterations: int,
        warmup: int,
        cold: bool = False,
        challenge: Challenge | None = None,
        within: float | None = None,
    ) -> Sample:
        if warmup < 2:
            return super().time(iterations, warmup)
        assert within is not None
        self.clock.seconds += within
        raise OutOfTime(self.name, "no answer")


@pytest.mark.parametrize("unending", [{"a"}, {"eager", "a"}, {"eager", "a", "b"}])
def test_every_level_is_timed_in_the_first_round_though_others_do_not_end(
    unending: set[str],
) -> None:
    clock = Clock()
    kinds = {name: Unending if name in unending else Scripted for name in ("eager", "a", "b")}
    race = race_of(clock, 8.0, *(kind(name, clock) for name, kind in kinds.items()))
    assert race.cuts.keys() == unending
    assert race.stopped_because == "time limit"
    assert [set(blocks) for blocks in race.rounds] == [kinds.keys() - unending][: 3 - len(unending)]
    assert clock.seconds < OVERTIME * 8.0 + 3.0


def test_a_slow_model_is_timed_once_at_every_level() -> None:
    clock = Clock()
    workers = [Scripted(name, clock, nanoseconds=20_000_000_000) for name in ("eager", "a")]
    race = race_of(clock, 1.0, *workers)
    assert not race.cuts
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
    """Whenever and however much its levels, or one of them, get slower after calibration. A block
    that began in time may end after it."""
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
    longest = max(worker.longest for worker in workers)
    assert clock.seconds <= max(OVERTIME * limit, LEAST_SECONDS) + longest + 1e-6
