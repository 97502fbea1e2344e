"""How a token is chosen, and which error of the logits explains a choice."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st

from golow.records.text import Sampling
from golow.workload.generation.sampling import choose, explaining_errors

LOGITS = st.lists(st.floats(-8, 8, width=32), min_size=2, max_size=12)
SAMPLINGS = st.builds(
    Sampling,
    temperature=st.floats(0.3, 2.0),
    top_k=st.integers(0, 13),
    top_p=st.floats(0.1, 1.0),
)
ANY = st.one_of(st.just(Sampling()), SAMPLINGS)
DRAWS = st.floats(0, 1, exclude_max=True)


def rows(logits: list[float]) -> torch.Tensor:
    return torch.tensor([logits], dtype=torch.float64)


def drawn(draw: float) -> torch.Tensor:
    return torch.tensor([draw], dtype=torch.float64)


@example([0.0, 0.0, 0.0, 0.0], Sampling(temperature=1.0, top_p=0.5, seed=0), 0.0)
@given(LOGITS, ANY, DRAWS)
def test_no_error_is_needed_for_the_token_that_is_chosen(
    logits: list[float], sampling: Sampling, draw: float
) -> None:
    token = choose(rows(logits), sampling, drawn(draw))
    assert float(explaining_errors(rows(logits), token, sampling, drawn(draw))) <= 1e-9


@given(LOGITS, ANY, DRAWS, st.floats(1e-4, 0.5), st.integers(0, 2**32))
def test_an_error_explains_what_it_makes_of_a_choice(
    logits: list[float], sampling: Sampling, draw: float, error: float, seed: int
) -> None:
    """Logits that are off by up to the error may choose another token; no larger error is needed
    to explain it."""
    generator = torch.Generator().manual_seed(seed)
    exact = rows(logits)
    noise = torch.rand(exact.shape, generator=generator, dtype=torch.float64) * 2 - 1
    token = choose(exact + error * noise, sampling, drawn(draw))
    assert float(explaining_errors(exact, token, sampling, drawn(draw))) <= error * 1.001 + 1e-6


def test_a_token_far_from_all_others_needs_a_large_error() -> None:
    logits = rows([4.0, 1.0, -20.0])
    last = torch.tensor([2])
    assert float(explaining_errors(logits, last, Sampling(), None)) == pytest.approx(12.0)
    sampling = Sampling(temperature=1.0)
    assert float(explaining_errors(logits, last, sampling, drawn(0.5))) > 5
    sampling = Sampling(temperature=1.0, top_k=1)
    assert float(explaining_errors(logits, torch.tensor([1]), sampling, drawn(0.5))) >= 1.5


def test_draws_that_are_spread_evenly_give_the_probabilities() -> None:
    logits, sampling = [1.0, 0.0, 2.0, -1.0], Sampling(temperature=0.7)
    count = 10_000
    draws = (torch.arange(count, dtype=torch.float64) + 0.5) / count
    tokens = choose(rows(logits).expand(count, -1), sampling, draws)
    shares = torch.bincount(tokens, minlength=4) / count
    assert torch.allclose(shares, (torch.tensor(logits) / 0.7).softmax(0), atol=2e-4)


@pytest.mark.parametrize(
    ("sampling", "kept"),
    [
        (Sampling(temperature=1.0, top_k=2), {0, 2}),
        (Sampling(temperature=1.0, top_p=0.5), {2}),
        (Sampling(temperature=1.0, top_p=0.8), {0, 2}),
        (Sampling(temperature=1.0, top_k=3, top_p=0.99), {0, 1, 2}),
        (Sampling(temperature=1.0), {0, 1, 2, 3}),
    ],
)
def test_only_candidates_are_chosen(sampling: Sampling, kept: set[int]) -> None:
    """Probabilities 0.237, 0.087, 0.644 and 0.032."""
    logits = rows([1.0, 0.0, 2.0, -1.0]).expand(1000, -1)
    draws = torch.arange(1000, dtype=torch.float64) / 1000
    assert set(choose(logits, sampling, draws).tolist()) == kept


@given(LOGITS, SAMPLINGS)
def test_a_draw_at_either_end_chooses_a_token(logits: list[float], sampling: Sampling) -> None:
    for draw in (0.0, math.nextafter(1, 0)):
        assert 0 <= int(choose(rows(logits), sampling, drawn(draw))) < len(logits)
