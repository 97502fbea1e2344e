"""The mean of arrays over ranks, which are threads here, in memory that they share."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from golow.levels.direct.ranks.meeting import FolderMeeting, RankLost
from golow.levels.direct.ranks.shared_mean import SharedMean, alone
from golow.levels.direct.ranks.shared_memory import Barrier


def on_ranks(ranks: int, work: Callable[[FolderMeeting], Any], patience: float = 30) -> list[Any]:
    """What each rank returns, or the error that it raised."""
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(ranks) as pool:

        def of_rank(rank: int) -> Any:
            try:
                return work(FolderMeeting(Path(folder), rank, ranks, patience))
            except RankLost as error:
                return error

        return list(pool.map(of_rank, range(ranks)))


def drawn(sizes: list[int], rank: int, dtype: type) -> list[np.ndarray]:
    generator = np.random.default_rng(rank)
    return [generator.standard_normal(size).astype(dtype) for size in sizes]


@settings(max_examples=25, deadline=None)
@given(
    ranks=st.integers(1, 3),
    sizes=st.lists(st.integers(0, 700), min_size=1, max_size=6),
    slot=st.sampled_from([64, 512, 4096]),
    dtype=st.sampled_from([np.float32, np.float16, np.float64]),
    in_place=st.booleans(),
)
def test_every_rank_has_the_mean_in_the_order_of_the_ranks(
    ranks: int, sizes: list[int], slot: int, dtype: type, in_place: bool
) -> None:
    """Bit for bit what adding up and dividing gives, in float32 for shorter types; arrays may be
    larger than the memory of a rank. Several means follow one another."""

    def work(meeting: FolderMeeting) -> list[np.ndarray]:
        mean, arrays = SharedMean(meeting, slot), drawn(sizes, meeting.rank, dtype)
        for _ in range(2):
            results = arrays if in_place else [np.empty_like(a) for a in arrays]
            mean(arrays, results)
            arrays = [a + meeting.rank for a in results]  # other ones for the next time
        mean(arrays, arrays)
        return arrays

    found = on_ranks(ranks, work)
    own = [drawn(sizes, rank, dtype) for rank in range(ranks)]
    for _ in range(2):
        own = [[a + rank for a in means(own)] for rank in range(ranks)]
    for arrays in found:
        for array, wanted in zip(arrays, means(own), strict=True):
            assert np.array_equal(array, wanted)


def means(own: list[list[np.ndarray]]) -> list[np.ndarray]:
    found = []
    for same in zip(*own, strict=True):
        total = same[0].astype(np.promote_types(same[0].dtype, np.float32))
        for array in same[1:]:
            total = total + array.astype(total.dtype)
        found.append((total / total.dtype.type(len(own))).astype(same[0].dtype))
    return found


def test_a_rank_that_stays_away_ends_the_wait_of_the_others() -> None:
    def work(meeting: FolderMeeting) -> FolderMeeting:
        mean, array = SharedMean(meeting, 64), np.zeros(4, np.float32)
        if meeting.rank == 0:
            mean([array], [array])
        return meeting  # it is still there

    first, _ = on_ranks(2, work, patience=0.5)
    assert isinstance(first, RankLost)
    assert "rank 1 of 2 did not arrive within 0.5 s, and rank 0 waited for it" in str(first)


def test_a_barrier_lets_no_rank_pass_before_the_last_one() -> None:
    passed: list[int] = []

    def work(meeting: FolderMeeting) -> int:
        barrier = Barrier(meeting)
        for turn in range(50):
            passed.append(turn)
            barrier()
            assert passed.count(turn) == meeting.ranks
            barrier()
        return meeting.rank

    assert on_ranks(3, work) == [0, 1, 2]


def test_alone_it_is_the_array_itself() -> None:
    array, result = np.arange(3.0), np.zeros(3)
    alone([array], [result])
    assert np.array_equal(array, result)


def test_a_rank_that_is_none_is_refused(tmp_path: Path) -> None:
    with pytest.raises(Exception, match="rank 2 is not one of 2 ranks"):
        FolderMeeting(tmp_path, 2, 2)
