"""The figures and words that are quoted, on samples whose truth is known."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from golow.measure import stats, words
from golow.records.comparison import Quantity, Ratio


@pytest.fixture
def draw() -> np.random.Generator:
    """Each test's own, so that no test's numbers depend on which tests ran before it."""
    return np.random.default_rng(0)


def quantity(value: float) -> Quantity:
    return Quantity(name="difference", unit="s", value=value)


def ratio_of(word: str) -> Ratio:
    return Ratio(value=0.9, low=0.89, high=0.91, word=word)  # type: ignore[arg-type]


def test_block_figure_is_the_median_in_seconds_and_ignores_a_spike() -> None:
    assert stats.block_figure((5_000_000, 464_000_000, 5_100_000)) == pytest.approx(0.0051)


@pytest.mark.parametrize(
    ("low", "high", "word"),
    [
        (0.90, 0.98, "faster"),
        (0.90, 0.9899, "faster"),
        (0.90, 0.99, "unclear"),
        (0.982, 0.989, "faster"),  # inside 2% of 1, but a claim goes before ``same``
        (1.02, 1.10, "slower"),
        (1.0101, 1.10, "slower"),
        (1.01, 1.10, "unclear"),
        (0.99, 1.01, "same"),
        (0.98, 1.02, "same"),
        (0.985, 1.018, "same"),
        (0.979, 1.0, "unclear"),
        (1.0, 1.021, "unclear"),
        (0.5, 1.5, "unclear"),
        (float("nan"), float("nan"), "unclear"),
        (float("nan"), 0.5, "unclear"),
        (1.5, float("nan"), "unclear"),
        (0.9, 0.8, "unclear"),
        (float("-inf"), float("inf"), "unclear"),
    ],
)
def test_word(low: float, high: float, word: str) -> None:
    assert words.word(low, high) == word


@given(st.floats(0.5, 2.0), st.floats(0.0, 0.5))
def test_no_interval_that_reaches_1_is_ever_a_claim(low: float, width: float) -> None:
    if low <= 1 <= low + width:
        assert words.word(low, low + width) in {"same", "unclear"}


@pytest.mark.slow
def test_interval_of_the_median_covers_the_truth_about_as_often_as_it_says(
    draw: np.random.Generator,
) -> None:
    covered = 0
    for trial in range(400):
        low, high = stats.median_interval(draw.normal(1, 0.02, 12), seed=trial) or (np.nan, np.nan)
        covered += low <= 1 <= high
    print(f"nominal 95% intervals from 12 rounds: {covered / 4:.1f}% cover")
    assert covered >= 360


def test_same_seed_same_interval(draw: np.random.Generator) -> None:
    sample = draw.normal(1, 0.02, 12)
    assert stats.median_interval(sample, 3) == stats.median_interval(sample, 3)


def test_level_time_has_an_interval_from_two_rounds_on() -> None:
    assert stats.level_time([0.04], 0) == Quantity(name="time", unit="s", value=0.04)
    several = stats.level_time([0.040, 0.042, 0.041], 0)
    assert several.low is not None
    assert several.high is not None
    assert several.low <= 0.041 <= several.high
    assert several.value == 0.041
    with pytest.raises(ValueError, match="no round"):
        stats.level_time([], 0)


def test_ratio_is_paired_by_round(draw: np.random.Generator) -> None:
    """The machine is three times slower in some rounds; only unpaired figures would see it."""
    speed = draw.permutation([1.0, 3.0] * 10)
    baseline = 0.040 * speed * draw.normal(1, 0.005, 20)
    found = stats.ratio(0.030 * speed * draw.normal(1, 0.005, 20), baseline, 0)
    assert found is not None
    assert found.word == "faster"
    assert found.value == pytest.approx(0.75, rel=0.01)
    assert stats.relative_width(found) < 0.02
    assert stats.relative_width(stats.level_time(baseline, 0)) > 0.5


def test_a_constant_pause_is_recovered_as_difference(draw: np.random.Generator) -> None:
    baseline = draw.normal(0.040, 0.0004, 30)
    found = stats.difference(baseline + draw.normal(0.010, 0.0004, 30), baseline, 0)
    assert found.unit == "s"
    assert found.value == pytest.approx(0.010, rel=0.05)


@pytest.mark.parametrize("rounds", range(words.LEAST_ROUNDS))
def test_too_few_rounds_have_no_word(rounds: int) -> None:
    level = np.linspace(0.0200, 0.0201, rounds)
    found = stats.ratio(level, np.full(rounds, 0.04), 0)
    assert (found is None) == (rounds < 2)
    assert found is None or found.word == "unclear"


def test_enough_rounds_have_a_word() -> None:
    rounds = words.LEAST_ROUNDS
    found = stats.ratio(np.linspace(0.0200, 0.0201, rounds), np.full(rounds, 0.04), 0)
    assert found is not None
    assert found.word == "faster"


def test_rounds_without_any_spread_make_no_claim_and_no_warning() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = stats.ratio(np.full(20, 0.02), np.full(20, 0.04), 0)
    assert found == Ratio(value=0.5, low=0.5, high=0.5, word="unclear")


def test_a_baseline_of_no_time_has_no_ratio() -> None:
    assert stats.ratio([0.1] * 6, [0.0, *[0.1] * 5], 0) is None


def test_a_nan_has_no_ratio() -> None:
    assert stats.ratio([0.1, 0.2, float("nan"), 0.1, 0.2, 0.1], [1.0] * 6, 0) is None


def test_rounds_that_do_not_pair_are_refused() -> None:
    with pytest.raises(ValueError, match="1 rounds of the level against 3"):
        stats.ratio([0.1], [0.1, 0.2, 0.3], 0)
    with pytest.raises(ValueError, match="against"):
        stats.difference([0.1], [0.1, 0.2, 0.3], 0)


def test_relative_width() -> None:
    assert stats.relative_width(ratio_of("faster")) == pytest.approx(0.02 / 0.9)
    assert stats.relative_width(None) == float("inf")
    assert stats.relative_width(quantity(0.1)) == float("inf")


def test_payback() -> None:
    assert stats.payback(30.0, ratio_of("faster"), quantity(-0.010)) == pytest.approx(3000)
    assert stats.payback(-2.0, ratio_of("faster"), quantity(-0.010)) == 0


@pytest.mark.parametrize("word", ["slower", "same", "unclear"])
def test_no_payback_of_what_is_not_faster(word: str) -> None:
    assert stats.payback(30.0, ratio_of(word), quantity(-0.010)) is None


def test_no_payback_without_a_saving() -> None:
    assert stats.payback(30.0, ratio_of("faster"), quantity(0.001)) is None
    assert stats.payback(30.0, ratio_of("faster"), None) is None
    assert stats.payback(30.0, None, quantity(-0.010)) is None
