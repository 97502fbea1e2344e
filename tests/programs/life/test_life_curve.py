"""Total time over iterations: curves, their lower envelope and where one overtakes another."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from golow.programs.life.curve import HORIZON, Curve, break_even, envelope, fastest
from golow.programs.life.stages import break_evens, curve, uses
from support.records.lives import curves, cycle, level, life, whole

NEAR = 1e-9  # of a total: two sums of the same numbers may differ by rounding
SHORT = 200  # iterations that are looked at one by one

SEVERAL = st.lists(curves(), min_size=1, max_size=5).map(
    lambda drawn: {f"level {number}": one for number, one in enumerate(drawn)}
)


@given(curves())
def test_a_total_never_falls_and_ends_in_a_straight_line(drawn: Curve) -> None:
    totals = [drawn.total(n) for n in range(1, SHORT)]
    assert all(a <= b * (1 + NEAR) for a, b in pairwise(totals))
    assert drawn.total(1) == pytest.approx(drawn.fixed + drawn.first)
    everything = drawn.fixed + drawn.first + drawn.settling + drawn.steady * (HORIZON - 1)
    assert drawn.total(HORIZON) == pytest.approx(everything)


@given(SEVERAL)
def test_the_envelope_covers_all_numbers_and_is_nowhere_above_a_curve(
    drawn: dict[str, Curve],
) -> None:
    segments = envelope(drawn)
    assert [s.begin for s in segments] == [1, *(s.end + 1 for s in segments[:-1])]
    assert segments[-1].end == HORIZON
    ends = {n for s in segments for n in (s.begin, s.end, (s.begin + s.end) // 2)}
    for count in sorted(ends | set(range(1, SHORT))):
        [segment] = [s for s in segments if s.begin <= count <= s.end]
        shortest = drawn[fastest(drawn, count)].total(count)
        assert drawn[segment.level].total(count) <= shortest * (1 + NEAR)


@given(curves(), curves())
def test_a_level_overtakes_where_it_is_behind_for_the_last_time(one: Curve, other: Curve) -> None:
    found = break_even("one", "other", {"one": one, "other": other}).iterations

    def behind(count: int) -> bool:
        return one.total(count) > other.total(count) * (1 + NEAR)

    if found is None:
        assert one.total(HORIZON) > other.total(HORIZON)
        return
    later = {found, HORIZON, (found + HORIZON) // 2, *range(found, min(found + SHORT, HORIZON))}
    assert not any(behind(count) for count in later)
    if found > 1:
        assert one.total(found - 1) >= other.total(found - 1) * (1 - NEAR)


def test_what_pays_later_is_used_later() -> None:
    quick, slow = Curve(1, 0.001, 0, 1, 0.001), Curve(2, 0.0005, 0, 1, 0.0005)
    known = {"quick": quick, "slow": slow}
    # 1 + 0.001 n = 2 + 0.0005 n at n = 2000, where they are equal.
    assert break_even("slow", "quick", known).iterations == pytest.approx(2000, abs=1)
    assert break_even("quick", "slow", known).iterations is None
    assert [s.level for s in envelope(known)] == ["quick", "slow"]
    assert envelope({}) == ()


def test_a_level_that_settles_slowly_may_be_overtaken_meanwhile() -> None:
    """The curves cross twice: the second one is faster at first and for many iterations."""
    level_one, settles = Curve(1, 0.1, 0, 1, 0.1), Curve(0.97, 0.1, 1, 11, 0.05)
    known = {"one": level_one, "settles": settles}
    assert [s.level for s in envelope(known)] == ["settles", "one", "settles"]
    overtakes = break_even("settles", "one", known).iterations
    assert overtakes is not None
    assert overtakes == envelope(known)[-1].begin


def test_uses_name_levels_whose_ranges_overlap() -> None:
    near = [life(number=n, start=1 + n / 10) for n in range(3)]
    far = [life(number=n, start=9) for n in range(3)]
    found = cycle(level("a", near), level("b", near), level("c", far))
    first = uses(found, "warm")[0]
    assert (first.iterations, first.level, first.also, first.ranged) == (1, "a", ("b",), True)
    alone = uses(cycle(level("a", near[:1]), level("b", near)), "warm")[0]
    assert not alone.ranged, "one life says nothing of the next one"
    assert uses(found, "cold") == ()


def test_a_level_that_failed_is_not_used() -> None:
    found = whole()
    assert {use.level for use in uses(found, "cold")} == {"eager", "libtorch"}
    assert curve(found.levels[1], "cold") is None
    [overtakes] = break_evens(found, "cold")
    assert (overtakes.level, overtakes.other) == ("libtorch", "eager")
    # 29 s more of a start for half a millisecond less an iteration.
    assert overtakes.iterations == pytest.approx(58_000, rel=0.1)
