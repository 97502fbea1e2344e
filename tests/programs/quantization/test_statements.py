"""How far a network moved, and what that costs: the numbers behind the words."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binomtest, entropy

from golow.programs.quantization.quantization_record import TaskAccuracy
from golow.programs.quantization.statements import (
    AccuracyMeter,
    MovementMeter,
    gate_interval,
    share,
)
from support.examples import examples


@given(st.integers(0, 500), st.integers(1, 500))
@examples(40)
def test_shares_have_the_exact_interval(count: int, cases: int) -> None:
    count = min(count, cases)
    found = share(count, cases)
    wanted = binomtest(count, cases).proportion_ci(0.95, "exact")
    assert (found.low, found.high) == pytest.approx((wanted.low, wanted.high), abs=1e-9)
    assert found.low <= found.value <= found.high


def accuracy_of(both: int, lost: int, gained: int, wrong: int, gate: float = 0.99) -> TaskAccuracy:
    """The statement about so many cases."""
    meter = AccuracyMeter()
    right, other = [9.0, 0.0], [0.0, 9.0]
    pairs = [(right, right)] * both + [(right, other)] * lost
    pairs += [(other, right)] * gained + [(other, other)] * wrong
    before, after = (torch.tensor(scores) for scores in zip(*pairs, strict=True))
    for rows in torch.split(torch.arange(len(pairs)), 100):
        meter.add(torch.zeros(len(rows), dtype=torch.int64), before[rows], after[rows])
    found = meter.accuracy("cases", gate, is_text=False)
    assert found is not None
    return found


def test_the_gate_has_three_verdicts() -> None:
    assert accuracy_of(9800, 2, 1, 197).verdict == "passes"
    assert accuracy_of(9000, 500, 10, 490).verdict == "misses"
    # Nothing is lost in 360 cases, of which one per cent would be 3.6: that may be luck.
    assert accuracy_of(353, 0, 0, 7).verdict == "unclear"
    assert accuracy_of(950, 9, 0, 41).verdict == "unclear"


def test_the_counts_are_those_of_the_cases() -> None:
    found = accuracy_of(70, 10, 5, 15)
    assert (found.original.count, found.quantized.count, found.lost, found.gained) == (
        80,
        75,
        10,
        5,
    )
    assert found.original.cases == 100


def test_the_gate_rarely_errs() -> None:
    """A network that loses just as much as the gate allows neither passes nor misses, but for at
    most one in twenty."""
    generator = np.random.default_rng(0)
    kept = 0.95
    lost = (1 - 0.99) * kept  # of which 99% of the accuracy is kept, nothing gained
    verdicts = []
    for both, away, _ in generator.multinomial(3000, [kept - lost, lost, 1 - kept], size=400):
        low, high = gate_interval(int(both), int(away), 0, 3000, 0.99)
        verdicts.append(low >= 0 or high < 0)
    assert np.mean(verdicts) <= 0.05


def test_the_movement_is_that_of_the_formulas() -> None:
    generator = torch.Generator().manual_seed(0)
    before = torch.randn(50, 7, generator=generator)
    after = before + 0.3 * torch.randn(50, 7, generator=generator)
    meter = MovementMeter()
    for rows in torch.split(torch.arange(50), 16):
        meter.add([before[rows]], [after[rows]])
    [found] = meter.movement("numbers").outputs
    assert found.error == pytest.approx(float((after - before).norm() / before.norm()), rel=1e-6)
    one, other = before.double().softmax(-1).numpy(), after.double().softmax(-1).numpy()
    assert found.divergence == pytest.approx(float(entropy(one, other, axis=1).mean()), rel=1e-6)
    assert found.flipped is not None
    assert found.flipped.count == int((before.argmax(1) != after.argmax(1)).sum()) > 0


def test_the_same_network_has_not_moved() -> None:
    meter, scores = MovementMeter(), torch.randn(4, 3, 5)
    meter.add([scores], [scores])
    [found] = meter.movement("numbers").outputs
    assert (found.error, found.divergence) == (0.0, 0.0)
    assert found.flipped is not None and found.flipped.cases == 12


def test_an_output_that_is_no_scores_has_only_an_error() -> None:
    meter = MovementMeter()
    meter.add([torch.ones(2, 3, 4, 4)], [torch.full((2, 3, 4, 4), 1.5)])
    [found] = meter.movement("pixels").outputs
    assert found.error == pytest.approx(0.5)
    assert found.divergence is None and found.flipped is None


def test_perplexity_is_that_of_the_right_classes() -> None:
    meter, scores = AccuracyMeter(), torch.zeros(2, 3, 4)
    meter.add(torch.zeros(2, 3, dtype=torch.int64), scores, scores)
    found = meter.accuracy("text", 0.99, is_text=True)
    assert found is not None and found.perplexity is not None
    assert found.perplexity[0] == pytest.approx(4.0)
    assert AccuracyMeter().accuracy("nothing", 0.99, is_text=False) is None
    assert math.isfinite(found.low)
