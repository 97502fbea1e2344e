"""The search for the highest rate, on levels that are functions of the rate."""

# ruff: noqa: S311 - noise, not secrets

from __future__ import annotations

import random
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from golow.programs.load.search import FAR, PRECISION, ROUGH_PRECISION, again, roughly
from golow.programs.load.verdict import rate_of, rate_ratio

RATES = st.floats(0.5, 5000)


@given(RATES, st.floats(0.05, 20))
def test_the_rough_search_ends_near_the_highest_rate(true: float, share: float) -> None:
    found = roughly(lambda rate: rate <= true, true * share)
    assert found is not None
    assert true / ROUGH_PRECISION <= found <= true * ROUGH_PRECISION


@given(RATES, st.floats(0.7, 1.4), st.integers(0, 100))
def test_a_round_ends_within_its_precision(true: float, share: float, seed: int) -> None:
    found = again(lambda rate: rate <= true, true * share, random.Random(seed))
    assert found is not None
    assert true / PRECISION <= found <= true * PRECISION


def test_what_holds_no_rate_has_none_after_few_runs() -> None:
    tried: list[float] = []
    assert roughly(lambda rate: bool(tried.append(rate)), 100.0) is None
    assert len(tried) < 10
    assert min(tried) >= 100.0 / FAR / 2


def test_what_holds_every_rate_ends_too() -> None:
    tried: list[float] = []
    assert roughly(lambda rate: tried.append(rate) is None, 100.0) is not None
    assert len(tried) < 10


Level = Callable[[float], Callable[[float], bool]]


def level(true: float, noise: random.Random) -> Level:
    """A level that holds up to a rate, of which each run sees some percent more or less. The drift
    of the machine in a round is given."""

    def in_round(drift: float) -> Callable[[float], bool]:
        return lambda rate: rate < true * drift * noise.gauss(1, 0.02)

    return in_round


def rounds_in_turn(levels: tuple[Level, Level], seed: int) -> tuple[list[float], list[float]]:
    """Five rounds of both, on a machine that changes by some percent between them."""
    draw = random.Random(seed)
    near = [roughly(one(1.0), 500.0 + 300 * number) for number, one in enumerate(levels)]
    found: tuple[list[float], list[float]] = ([], [])
    for _ in range(5):
        drift = draw.gauss(1, 0.05)
        for one, start, rates in zip(levels, near, found, strict=True):
            rate = again(one(drift), start or 1.0, draw)
            rates.append(rate or 0.0)
    return found


def test_two_equal_levels_are_called_equal_in_19_of_20_tries() -> None:
    words = []
    for seed in range(40):
        noise = random.Random(seed)
        pair = rounds_in_turn((level(400, noise), level(400, noise)), seed)
        ratio = rate_ratio(*pair, seed)
        words.append(ratio.word if ratio else "")
    assert words.count("same") >= 38


@pytest.mark.parametrize(("other", "word"), [(500, "slower"), (320, "faster")])
def test_a_level_that_holds_a_quarter_more_is_told_apart(other: float, word: str) -> None:
    for seed in range(10):
        noise = random.Random(seed)
        ratio = rate_ratio(*rounds_in_turn((level(400, noise), level(other, noise)), seed), seed)
        assert ratio is not None
        assert ratio.word == word


def test_a_rate_has_the_spread_of_its_rounds() -> None:
    found = rate_of([100.0, 90.0, 110.0, 105.0, 95.0], 0)
    assert found.value == 100.0
    assert found.low is not None
    assert found.high is not None
    assert 90.0 <= found.low < 100.0 < found.high <= 110.0
    assert rate_of([100.0], 0).low is None
