"""When a percentile may be quoted, and when two levels differ: logic on planted latencies."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from golow.programs.load.early_stopping import (
    DOUBT,
    allowed_over,
    allowing_none,
    needed,
    quoted,
    surely_over,
)
from golow.programs.load.load_record import LoadPlan, LoadRun, Scenario
from golow.programs.load.loadgen_logs import Said
from golow.programs.load.verdict import (
    apart_in_turn,
    outcome_of,
    pooled,
    rate_ratio,
    together,
    told_apart,
)

USUAL, SLOW = 2_000_000, 60_000_000  # nanoseconds
SHARES = st.sampled_from([0.5, 0.9, 0.97, 0.99, 0.999])


def latencies(count: int, seed: int, slow_every: int = 0) -> list[int]:
    """Latencies that vary by some percent, of which one in so many is slow."""
    drawn = np.random.default_rng(seed).normal(USUAL, 0.02 * USUAL, count)
    return [
        SLOW if slow_every and number % slow_every == 0 else int(one)
        for number, one in enumerate(drawn)
    ]


@given(SHARES, st.integers(1, 20_000))
def test_so_many_may_be_over_and_not_one_more(share: float, count: int) -> None:
    """By the binomial distribution itself, added up."""
    allowed = allowed_over(count, share)
    logs = np.arange(1, allowed + 2)
    steps = np.log(count - logs + 1) - np.log(logs) + np.log1p(-share) - np.log(share)
    terms = np.exp(count * np.log(share) + np.concatenate(([0.0], np.cumsum(steps))))
    assert terms[: allowed + 1].sum() <= DOUBT + 1e-9
    assert terms.sum() > DOUBT - 1e-9


@pytest.mark.parametrize(("share", "none", "least"), [(0.9, 44, 64), (0.99, 459, 662)])
def test_the_fewest_requests_are_those_that_loadgen_names(
    share: float, none: int, least: int
) -> None:
    """In its messages "Would need to run at least" and "Need to process at least"."""
    assert (allowing_none(share), needed(share)) == (none, least)


@given(SHARES, st.integers(1, 3000), st.integers(0, 10))
def test_a_percentile_is_within_its_ends(share: float, count: int, seed: int) -> None:
    found = quoted(latencies(count, seed), share)
    assert found is not None
    assert found.is_sure == (count >= needed(share))
    assert found.low is None or found.low <= found.value
    assert found.high is None or found.value <= found.high


def test_nothing_has_no_percentile() -> None:
    assert quoted([], 0.99) is None


def test_one_slow_answer_in_fifty_is_told_apart_at_p99_and_not_at_p50() -> None:
    slow, even = latencies(5000, 1, slow_every=50), latencies(5000, 2)
    assert told_apart(quoted(slow, 0.5), quoted(even, 0.5)) == "same"
    assert told_apart(quoted(slow, 0.99), quoted(even, 0.99)) == "slower"
    assert told_apart(quoted(even, 0.99), quoted(slow, 0.99)) == "faster"


def test_two_equal_levels_are_called_equal_in_19_of_20_tries() -> None:
    words = [
        told_apart(quoted(latencies(3000, 2 * n), share), quoted(latencies(3000, 2 * n + 1), share))
        for n in range(40)
        for share in (0.5, 0.9, 0.99)
    ]
    assert words.count("same") >= 0.95 * len(words)


def test_too_few_requests_tell_nothing_apart() -> None:
    slow, even = latencies(300, 1, slow_every=50), latencies(300, 2)
    assert told_apart(quoted(slow, 0.99), quoted(even, 0.99)) == "unclear"
    assert told_apart(None, quoted(even, 0.5)) == "unclear"


# ---------------------------------------------------------------- outcomes

PLAN = LoadPlan(scenarios=("server",), latency=0.02)
HELD = Said({"early_stopping_met": True, "result_perf_constraints_met": True}, ())
NOT_YET = Said({"early_stopping_met": False, "result_perf_constraints_met": True}, ())


def test_a_run_that_loadgen_lets_pass_is_held() -> None:
    assert outcome_of(HELD, run("measured", latencies(600, 1)), PLAN) == ("held", "")


def test_a_run_that_is_too_short_is_unclear() -> None:
    found, reason = outcome_of(NOT_YET, run("measured", latencies(100, 1)), PLAN)
    assert found == "unclear"
    assert "too few requests" in reason


def test_many_slow_requests_are_over_and_a_few_are_unclear() -> None:
    assert outcome_of(NOT_YET, run("measured", latencies(600, 1, slow_every=20)), PLAN)[0] == "over"
    assert (
        outcome_of(NOT_YET, run("measured", latencies(600, 1, slow_every=100)), PLAN)[0]
        == "unclear"
    )


def test_what_loadgen_ended_for_its_queue_is_an_overload_whatever_was_answered() -> None:
    ended = Said(HELD.values, ("Ending early: Too many outstanding queries. issued 56",))
    assert outcome_of(ended, run("measured", latencies(600, 1)), PLAN)[0] == "overload"


def test_only_the_server_has_a_latency_to_hold() -> None:
    assert outcome_of(NOT_YET, run("measured", [SLOW], "offline"), PLAN)[0] == "measured"
    assert (
        outcome_of(NOT_YET, run("measured", [SLOW]), LoadPlan(scenarios=("server",)))[0]
        == "measured"
    )


@given(st.integers(0, 50), st.integers(50, 2000))
def test_no_count_is_both_held_and_over(over: int, count: int) -> None:
    assert not (over <= allowed_over(count, 0.99) and surely_over(over, count, 0.99))


def run(outcome: str, values: list[int], scenario: Scenario = "server", number: int = 1) -> LoadRun:
    made: LoadRun = LoadRun(
        scenario=scenario,
        rate=100.0,
        round=number,
        outcome=outcome,  # type: ignore[arg-type]
        latencies=tuple(values),
        arrivals=tuple(range(len(values))),
    )
    return made


def test_runs_that_disagree_are_unclear_and_a_bad_one_decides() -> None:
    held, over = run("held", [1]), run("over", [1])
    assert together([held, held]) == "held"
    assert together([held, over]) == "unclear"
    assert together([held, run("overload", [1]), run("failed", [])]) == "failed"
    assert together([]) is None


def test_a_difference_that_one_round_alone_shows_is_unclear() -> None:
    """A machine that is slow during one of three runs makes all requests together slower."""
    rounds = (1, 2, 3)
    even = [run("measured", latencies(3000, n), number=n) for n in rounds]
    slow = [run("measured", [2 * one for one in latencies(3000, 9)], number=n) for n in rounds]
    assert apart_in_turn(slow, even, 0.9) == "slower"
    assert apart_in_turn(even, slow, 0.9) == "faster"
    disturbed = [*even[:2], slow[2]]
    assert told_apart(pooled(disturbed, 0.9), pooled(even, 0.9)) == "slower"
    assert apart_in_turn(disturbed, even, 0.9) == "unclear"
    assert apart_in_turn(even, even, 0.9) == "same"


def test_an_overload_has_no_percentile() -> None:
    """Those that still waited when it ended have no latency, and would be the slowest."""
    good = run("held", latencies(3000, 1))
    assert pooled([good, good], 0.5) is not None
    assert pooled([good, run("overload", latencies(3000, 2))], 0.5) is None


def test_rounds_that_do_not_belong_together_have_no_ratio() -> None:
    assert rate_ratio([1.0, 2.0], [1.0], 0) is None
