"""A comparison without advice states why, and what to do about it."""

from __future__ import annotations

import msgspec

from golow.report.comparison.advice import advice
from support.records.comparisons import comparison, run

EAGER = msgspec.structs.replace(run("eager"), ratio=None)


def test_too_few_rounds_ask_for_a_longer_time_limit() -> None:
    short = msgspec.structs.replace(run("onednn"), ratio=None)
    assert advice(comparison(EAGER, short)) == (
        "No advice: onednn passed the check but has too few rounds to compare: allow a longer time "
        "limit."
    )


def test_eager_alone_and_a_level_that_failed_are_told_apart() -> None:
    failed = msgspec.structs.replace(run("onednn", "failed"), ratio=None, time=None)
    assert advice(comparison(EAGER)) == "No advice: eager is the only level that ran."
    said = advice(comparison(EAGER, failed))
    assert said == "No advice: no level other than eager passed the check."
