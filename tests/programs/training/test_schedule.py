"""The learning rate of every batch: closed forms, and what holds of all schedules."""

from __future__ import annotations

import itertools
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from golow.programs.training.schedule import rates, require_sense
from golow.programs.training.training_record import Schedule
from golow.records.errors import GolowError


def whole(schedule: Schedule, rate: float, epochs: int, batches: int) -> list[float]:
    """All rates of a training."""
    return [
        r
        for epoch in range(1, epochs + 1)
        for r in rates(schedule, rate, epoch=epoch, epochs=epochs, batches=batches)
    ]


def test_constant() -> None:
    assert whole(Schedule(), 0.1, 2, 3) == [0.1] * 6


def test_step() -> None:
    schedule = Schedule(kind="step", step_epochs=2, factor=0.5)
    assert whole(schedule, 1.0, 5, 2) == [1, 1, 1, 1, 0.5, 0.5, 0.5, 0.5, 0.25, 0.25]


def test_cosine() -> None:
    """From the full rate through its half in the middle; after the last batch it would be 0."""
    found = whole(Schedule(kind="cosine"), 2.0, 2, 2)
    assert found == pytest.approx([2.0, 1 + math.sqrt(0.5), 1.0, 1 - math.sqrt(0.5)])


def test_a_warm_up_rises_in_a_line_to_what_follows() -> None:
    found = whole(Schedule(warm_up_epochs=1), 1.0, 2, 4)
    assert found == [0.25, 0.5, 0.75, 1, 1, 1, 1, 1]
    found = whole(Schedule(kind="cosine", warm_up_epochs=0.5), 1.0, 3, 4)
    assert found[:3] == [0.5, 1.0, 1.0]
    assert found[7] == pytest.approx((1 + math.cos(math.pi * 5 / 10)) / 2)


schedules = st.builds(
    Schedule,
    kind=st.sampled_from(("constant", "step", "cosine")),
    warm_up_epochs=st.floats(0, 3),
    step_epochs=st.integers(1, 4),
    factor=st.floats(0.01, 1),
)


@given(schedules, st.floats(1e-6, 10), st.integers(4, 8), st.integers(1, 9))
def test_no_rate_is_above_the_one_asked_for_nor_below_zero_and_after_the_warm_up_none_rises(
    schedule: Schedule, rate: float, epochs: int, batches: int
) -> None:
    require_sense(schedule, epochs)
    found = whole(schedule, rate, epochs, batches)
    assert len(found) == epochs * batches
    assert all(0 < r <= rate for r in found)
    after = found[math.ceil(schedule.warm_up_epochs * batches) :]
    assert all(one >= other for one, other in itertools.pairwise(after))


@given(schedules, st.integers(4, 8), st.integers(1, 9))
def test_rates_are_in_proportion_to_the_one_asked_for(
    schedule: Schedule, epochs: int, batches: int
) -> None:
    once, twice = (whole(schedule, rate, epochs, batches) for rate in (1.0, 2.0))
    assert twice == [2 * rate for rate in once]


@pytest.mark.parametrize(
    ("schedule", "said"),
    [
        (Schedule(warm_up_epochs=5), "does not fit into 5"),
        (Schedule(warm_up_epochs=-1), "does not fit"),
        (Schedule(warm_up_epochs=math.nan), "does not fit"),
        (Schedule(kind="step", step_epochs=0), "step_epochs= must be at least 1"),
        (Schedule(kind="step", factor=0), "factor= must be above 0 and finite, not 0"),
        (Schedule(kind="step", factor=math.inf), "factor= must be above 0 and finite, not inf"),
    ],
)
def test_a_schedule_without_sense_is_refused(schedule: Schedule, said: str) -> None:
    with pytest.raises(GolowError, match=said):
        require_sense(schedule, 5)
