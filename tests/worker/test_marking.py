"""Marks are the protocol's numbers, in every language."""

from __future__ import annotations

import math

import msgspec
import numpy as np
import pytest

from golow.worker.hashing import hashed, hashed_range
from golow.worker.marking import WINDOWS, cell, marked_arrays, values_of, window
from golow.worker.protocol import Marks

MARKS = Marks(input=0, start=2, length=3, low=-1.0, high=3.0, whole=False, seed=2**32 - 2)


def test_the_hash_is_that_of_the_protocol() -> None:
    """Known values, so that another language can be tested against them."""
    assert [hashed(n) for n in range(4)] == [0, 301794027, 3140136926, 3601063660]
    assert hashed_range(2**32 - 2, 5).tolist() == [hashed(n) for n in (-2, -1, 0, 1, 2)]


def test_every_element_has_its_own_value_in_the_range() -> None:
    values = values_of(MARKS, 4)
    assert len(values) == 4 * 3 + WINDOWS
    assert len(set(values.tolist())) == len(values)
    assert -1 <= values.min() < -0.99
    assert 2.99 < values.max() < 3
    assert values[2] == -1 + 4 * hashed(0) / 2**32


def test_whole_values_are_all_of_the_range() -> None:
    whole = msgspec.structs.replace(MARKS, low=5, high=8, whole=True)
    values = values_of(whole, 1)
    assert values.dtype == np.int64
    assert np.unique(values).tolist() == [5, 6, 7, 8]
    large = msgspec.structs.replace(whole, high=2**31)
    assert values_of(large, 1).max() > 2**31 - 2**20


def test_a_window_depends_on_seed_number_and_the_result_before() -> None:
    chained = msgspec.structs.replace(MARKS, chain=0.5)
    places = {window(MARKS, n, 0.7) for n in range(100)}
    assert len(places) > 95
    assert window(MARKS, 3, 0.7) == window(MARKS, 3, None)
    assert window(chained, 3, 0.7) == window(chained, 3, 0.9) != window(chained, 3, 1.1)
    assert window(chained, 3, None) == window(MARKS, 3, None)
    assert all(0 <= place < WINDOWS for place in places)


@pytest.mark.parametrize(
    ("width", "result", "found"),
    [(None, 1.0, 0), (0.5, None, 0), (0.5, math.nan, 0), (0.5, math.inf, 0), (0.5, 1.1, 2)],
)
def test_cells(width: float | None, result: float | None, found: int) -> None:
    assert cell(width, result) == found
    assert cell(0.5, -0.1) == 2**32 - 1


def test_arrays_get_a_window_and_their_own_values_back() -> None:
    batches = [[np.zeros((2, 3, 2), np.float32)] for _ in range(2)]
    expected = values_of(MARKS, 2)[7:13].astype(np.float32).reshape(2, 3)
    with marked_arrays(batches, MARKS, lambda: 5) as write:
        write(7)
        assert not batches[0][0].any()
        np.testing.assert_array_equal(batches[1][0].reshape(2, 6)[:, 2:5], expected)
        assert np.count_nonzero(batches[1][0]) == 6
    assert not batches[1][0].any()
