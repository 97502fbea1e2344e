"""Buffers in one arena: what is alive together never overlaps, and the arena is no larger than
it would be side by side."""

from __future__ import annotations

from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from golow.lower.plan.arena_offsets import CACHE_LINE, Layout, Lifetime, assign_offsets
from support.examples import examples


@st.composite
def lifetimes(draw: st.DrawFn) -> Lifetime:
    """A buffer; sizes on both sides of the alignment, and none at all."""
    size = draw(st.one_of(st.sampled_from([0, 1, 63, 64, 65, 128]), st.integers(0, 5000)))
    first = draw(st.integers(0, 12))
    return Lifetime(size, first, first + draw(st.integers(0, 6)))


def aligned(size: int) -> int:
    return (size + CACHE_LINE - 1) // CACHE_LINE * CACHE_LINE


def assert_apart(buffers: list[Lifetime], layout: Layout) -> None:
    """No two that live at the same step share a byte, and all are inside of the arena."""
    placed = list(zip(buffers, layout.offsets, strict=True))
    for (one, at), (other, there) in combinations(placed, 2):
        together = one.first <= other.last and other.first <= one.last
        apart = at + one.bytes <= there or there + other.bytes <= at
        assert apart or not together or not one.bytes or not other.bytes
    assert all(offset + buffer.bytes <= layout.bytes for buffer, offset in placed)


@pytest.mark.slow
@examples(150)
@given(st.lists(lifetimes(), max_size=25))
def test_buffers_alive_together_never_overlap(buffers: list[Lifetime]) -> None:
    layout = assign_offsets(buffers)
    assert len(layout.offsets) == len(buffers)
    assert all(offset >= 0 and offset % CACHE_LINE == 0 for offset in layout.offsets)
    assert_apart(buffers, layout)


@pytest.mark.slow
@examples(150)
@given(st.lists(lifetimes(), max_size=25))
def test_the_arena_is_between_its_bounds(buffers: list[Lifetime]) -> None:
    size = assign_offsets(buffers).bytes
    steps = range(max((b.last for b in buffers), default=-1) + 1)
    alive = [sum(aligned(b.bytes) for b in buffers if b.first <= i <= b.last) for i in steps]
    assert max(alive, default=0) <= size <= sum(aligned(b.bytes) for b in buffers)


@examples(50)
@given(st.lists(st.integers(0, 500), max_size=12))
def test_buffers_that_all_live_together_lie_side_by_side(sizes: list[int]) -> None:
    layout = assign_offsets([Lifetime(size, 0, 3) for size in sizes])
    assert layout.bytes == sum(aligned(size) for size in sizes)


@examples(50)
@given(st.lists(st.integers(0, 500), max_size=12))
def test_buffers_that_never_meet_share_all(sizes: list[int]) -> None:
    layout = assign_offsets([Lifetime(size, i, i) for i, size in enumerate(sizes)])
    assert set(layout.offsets) <= {0}
    assert layout.bytes == aligned(max(sizes, default=0))


def test_nothing_needs_nothing() -> None:
    assert assign_offsets([]) == Layout((), 0)
    assert assign_offsets([Lifetime(0, 0, 5), Lifetime(0, 2, 3)]) == Layout((0, 0), 0)


def test_a_buffer_of_no_bytes_takes_no_room_between_others() -> None:
    layout = assign_offsets([Lifetime(64, 0, 2), Lifetime(0, 0, 2), Lifetime(64, 0, 2)])
    assert layout.bytes == 128
    assert layout.offsets[1] == 0


def test_the_last_step_of_one_and_the_first_of_the_next_meet() -> None:
    """Both ends are included: a step writes its result while it still reads its argument."""
    assert assign_offsets([Lifetime(64, 0, 1), Lifetime(64, 1, 2)]).bytes == 128
    assert assign_offsets([Lifetime(64, 0, 1), Lifetime(64, 2, 3)]).bytes == 64


def test_a_chain_of_layers_takes_its_exact_optimum() -> None:
    """Four values of a chain, each read by the next step alone. Steps 1 to 3 need 384, 448 and
    320 bytes, so 448 is the least, and largest-first reaches it."""
    chain = [Lifetime(256, 0, 1), Lifetime(128, 1, 2), Lifetime(320, 2, 3), Lifetime(64, 3, 4)]
    layout = assign_offsets(chain)
    assert layout.bytes == 448
    assert layout.offsets[2] == 0  # the largest is placed first
    assert layout.offsets[0] == 0  # the value two steps before is gone by then
    assert_apart(chain, layout)


def test_a_gap_between_two_is_used() -> None:
    """The two outer ones live on; what lay between them is free again for a smaller one."""
    buffers = [Lifetime(512, 0, 9), Lifetime(256, 0, 3), Lifetime(192, 0, 9), Lifetime(128, 5, 6)]
    layout = assign_offsets(buffers)
    assert layout.offsets == (0, 512, 768, 512)
    assert layout.bytes == 960
