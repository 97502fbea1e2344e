"""Which pictures a level got wrong, and what is kept of them."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import softmax

from golow.programs.training.mistakes import LONGEST_SIDE, MOST, find_mistakes


@given(st.integers(0, 2**32), st.sampled_from([0, 1, 4]))
def test_the_surest_mistakes_come_first(seed: int, decimals: int) -> None:
    """Few decimals make equal scores."""
    numbers = np.random.default_rng(seed)
    outputs = np.round(numbers.normal(0, 3, (30, 4)), decimals).astype(np.float32)
    labels = numbers.integers(0, 4, 30)
    images = np.arange(30, dtype=np.uint8).reshape(30, 1, 1, 1)
    found = find_mistakes(outputs, labels, images, epoch=3)
    wrong = [row for row in range(30) if outputs[row].argmax() != labels[row]]
    assert (found.epoch, found.count) == (3, len(wrong))
    assert len(found.pictures) == min(MOST, len(wrong))
    sure = [one.probability for one in found.pictures]
    assert sure == sorted(sure, reverse=True)
    chosen = {one.sample for one in found.pictures}
    everyone = softmax(outputs.astype(np.float64), axis=1).max(1)
    assert chosen <= {*wrong}
    for row in {*wrong} - chosen:
        assert everyone[row] <= sure[-1] + 1e-12
    for one in found.pictures:
        assert one.truth == labels[one.sample] != one.predicted == outputs[one.sample].argmax()
        assert one.probability == pytest.approx(everyone[one.sample])
        assert one.pixels == bytes([one.sample])


def test_scores_that_are_not_finite_only_count() -> None:
    outputs = np.float32([[np.nan, 0, 1], [3, 0, 0]])
    found = find_mistakes(outputs, np.array([2, 1]), np.zeros((2, 1, 2, 2), np.uint8), 1)
    assert found.count == 2
    assert [one.sample for one in found.pictures] == [1]


@given(
    st.sampled_from([1, 2, 3, 4]),
    st.integers(1, 3 * LONGEST_SIDE),
    st.integers(1, 3 * LONGEST_SIDE),
)
def test_a_large_picture_is_made_smaller(channels: int, height: int, width: int) -> None:
    image = np.random.default_rng(0).integers(0, 256, (1, channels, height, width), np.uint8)
    [one] = find_mistakes(np.float32([[1, 0]]), np.array([1]), image, 1).pictures
    kept = np.frombuffer(one.pixels, np.uint8).reshape(one.shape)
    assert one.shape[0] == (3 if channels >= 3 else 1)
    assert max(one.shape[1:]) <= LONGEST_SIDE
    step = -(-max(height, width) // LONGEST_SIDE)
    assert kept[0, 0, 0] == np.rint(image[0, 0, :step, :step].mean())
    if step == 1:
        assert (kept == image[0, : len(kept)]).all()
