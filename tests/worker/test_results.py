"""The number to which a worker commits for the outputs of an iteration."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from golow.check.timed_results import SUM_ROUNDING
from golow.worker.results import BLOCK, weighted_sum, weights
from support.examples import examples


def hashed(index: int) -> float:
    """The weight of one element, in Python's integers."""
    value = index * 0x9E3779B1 % 2**32
    for shift, factor in ((16, 0x85EBCA6B), (13, 0xC2B2AE35)):
        value = (value ^ value >> shift) * factor % 2**32
    return float(np.float32((value ^ value >> 16) / 2.0**31 - 1.0))


@examples(20)
@given(start=st.integers(0, 2**31), count=st.integers(0, 2 * BLOCK + 3), data=st.data())
def test_every_element_has_its_own_weight(start: int, count: int, data: st.DataObject) -> None:
    found = weights(start, count)
    assert found.shape == (count,)
    if count:
        place = data.draw(st.integers(0, count - 1))
        assert found[place] == hashed(start + place)


@examples(20)
@given(
    sizes=st.lists(st.integers(0, 2 * BLOCK), max_size=4),
    dtype=st.sampled_from(["float32", "int64"]),
    seed=st.integers(0, 9),
)
def test_the_sum_counts_through_all_outputs(sizes: list[int], dtype: str, seed: int) -> None:
    drawn = np.random.default_rng(seed)
    outputs = [(9 * drawn.standard_normal((2, size))).astype(dtype)[::-1] for size in sizes]
    whole = np.concatenate([np.zeros(0), *(output.ravel() for output in outputs)])
    expected = float(np.dot(whole, weights(0, whole.size).astype(np.float64)))
    size = float(np.linalg.norm(whole)) + 1e-30
    assert abs(weighted_sum(outputs) - expected) <= SUM_ROUNDING / 2 * size


@pytest.mark.parametrize("place", [0, BLOCK - 1, BLOCK, 3 * BLOCK + 7])
def test_a_wrong_element_anywhere_is_noticed(place: int) -> None:
    output = np.ones(4 * BLOCK, np.float32)
    before = weighted_sum([output])
    output[place] = 2
    assert abs(weighted_sum([output]) - before) > 1e-4


def test_nothing_but_the_weights_takes_memory() -> None:
    output = np.ones(10_000_000, np.float32)
    tracemalloc.start()
    try:
        weighted_sum([output])
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    print(f"{peak / output.nbytes:.2f} of the output's bytes")
    assert peak < 1.1 * output.nbytes
