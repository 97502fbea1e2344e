"""Loss, accuracy and confusion matrix against PyTorch's and against counting by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from torch.nn import functional

from golow.programs.training.evaluation import evaluate


@given(
    arrays.arrays(np.float32, (7, 4), elements=st.floats(-1e4, 1e4, width=32)),
    st.lists(st.integers(0, 3), min_size=7, max_size=7),
)
def test_it_is_what_pytorch_computes(outputs: np.ndarray, classes: list[int]) -> None:
    labels = np.array(classes)
    found = evaluate(outputs, labels, 4)
    scores = torch.from_numpy(outputs).double()
    expected = functional.cross_entropy(scores, torch.from_numpy(labels)).item()
    assert found.loss == pytest.approx(expected, rel=1e-12, abs=1e-12)
    predicted = scores.argmax(1).numpy()
    assert found.accuracy == (predicted == labels).mean()
    for true in range(4):
        for guess in range(4):
            count = int(((labels == true) & (predicted == guess)).sum())
            assert found.confusion[true][guess] == count


def test_logarithms_of_shares_have_the_same_loss() -> None:
    """The network of PyTorch's MNIST example ends in log_softmax."""
    scores = np.float32([[1.0, 2.0, -1.0], [0.0, 0.5, 3.0]])
    logarithms = functional.log_softmax(torch.from_numpy(scores), 1).numpy()
    labels = np.array([1, 0])
    one, other = evaluate(scores, labels, 3), evaluate(logarithms, labels, 3)
    assert one.loss == pytest.approx(other.loss, rel=1e-6)
    assert one.confusion == other.confusion


def test_a_model_may_have_more_scores_than_there_are_classes() -> None:
    found = evaluate(np.float32([[0, 0, 9], [9, 0, 0]]), np.array([0, 0]), 2)
    assert found.confusion == ((1, 0, 1), (0, 0, 0))
    assert found.accuracy == 0.5


def test_what_is_not_finite_gives_no_loss() -> None:
    found = evaluate(np.float32([[np.nan, 0.0], [1.0, 0.0]]), np.array([0, 0]), 2)
    assert math.isnan(found.loss)


@pytest.mark.parametrize("shape", [(2,), (3, 4), (2, 2), (2, 4, 1)])
def test_outputs_of_another_shape_are_refused(shape: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match="needs one score per class"):
        evaluate(np.zeros(shape, np.float32), np.array([0, 2]), 3)
