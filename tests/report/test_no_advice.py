"""A comparison without advice states why, and what to do about it."""

from __future__ import annotations

import msgspec

from golow.records.comparison import Block, Ratio
from golow.report.comparison.advice import advice
from support.records.comparisons import comparison, run

EAGER = msgspec.structs.replace(run("eager"), ratio=None)


def test_too_few_rounds_ask_for_a_longer_time_limit() -> None:
    short = msgspec.structs.replace(run("onednn"), ratio=None)
    assert advice(comparison(EAGER, short)) == (
        "No advice: onednn passed the check but has too few rounds to compare: allow a longer time "
        "limit."
    )


def test_on_busy_cores_the_advice_is_quiet_cores() -> None:
    """As recorded beside a build on both cores: two rounds, half of their blocks contended, every
    ratio unclear."""
    blocks = tuple(
        Block(
            round=number,
            position=0,
            host_ns=(2_000_000,),
            wait_share=0.4 if number % 2 else 0.0,
            contended=bool(number % 2),
        )
        for number in range(2)
    )
    unclear = Ratio(value=0.8, low=0.5, high=1.3, word="unclear")
    busy = [
        msgspec.structs.replace(EAGER, blocks=blocks),
        msgspec.structs.replace(run("onednn"), blocks=blocks, ratio=unclear),
    ]
    race = msgspec.structs.replace(
        comparison(EAGER).race, rounds=2, contended_share=0.5, stopped_because="time limit"
    )
    said = advice(comparison(*busy, race=race))
    assert "onednn stayed unclear: the cores were busy. In 50% of the blocks" in said
    assert "for a median of 40% of the time" in said
    assert "taskset" in said
    assert "longer time limit" not in said
    # The same on quiet cores.
    quiet = msgspec.structs.replace(race, contended_share=0.1)
    assert "onednn stayed unclear: allow a longer time limit." in advice(
        comparison(*busy, race=quiet)
    )
    short = msgspec.structs.replace(busy[1], ratio=None)
    assert "too few rounds to compare: the cores were busy" in advice(
        comparison(busy[0], short, race=race)
    )


def test_eager_alone_and_a_level_that_failed_are_told_apart() -> None:
    failed = msgspec.structs.replace(run("onednn", "failed"), ratio=None, time=None)
    assert advice(comparison(EAGER)) == "No advice: eager is the only level that ran."
    said = advice(comparison(EAGER, failed))
    assert said == "No advice: no level other than eager passed the check."
