"""Weights of a plan: whatever changes them is seen, also what autograd does not count."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from golow.compiled.dynamo.watched_weights import SAMPLES, WatchedWeights, is_watchable
from support.examples import examples


def weights() -> list[Tensor]:
    torch.manual_seed(0)
    image = torch.randn(4, 3, 3, 3).to(memory_format=torch.channels_last)
    return [nn.Parameter(torch.randn(6, 5)), torch.randn(7), torch.arange(9), nn.Parameter(image)]


def with_numpy(tensor: Tensor) -> None:
    array: np.ndarray = tensor.detach().numpy()
    array *= 3


CONTENT: dict[str, Callable[[list[Tensor]], object]] = {
    "in place": lambda w: w[0].mul_(2),
    "one element": lambda w: w[0][2, 3].fill_(9),
    "past autograd": lambda w: w[0].data.mul_(2),
    "an adapter merged": lambda w: w[0].data.add_(torch.ones(6, 1) @ torch.ones(1, 5)),
    "by NumPy": lambda w: with_numpy(w[1]),
    "integers past autograd": lambda w: w[2].data.add_(1),
    "an image past autograd": lambda w: w[3].data.add_(1),
    "the same values": lambda w: w[0].copy_(w[0].clone()),
}


@pytest.mark.parametrize("name", CONTENT)
@torch.no_grad()
def test_other_content_is_seen(name: str) -> None:
    held = weights()
    watched = WatchedWeights(range(4), held)
    assert watched.change(held) == "none"
    CONTENT[name](held)
    assert watched.change(held) == "content"
    watched.take(held)
    assert watched.change(held) == "none"


def test_other_tensors_are_seen_and_whether_the_first_are_in_use() -> None:
    held = weights()
    watched = WatchedWeights(range(4), held)
    other = weights()
    assert watched.change(other) == "other tensors"
    assert watched.are_in_use(other)  # `held` has them
    del held
    assert not watched.are_in_use(other)


def test_what_replaces_a_parameter_s_memory_is_another_tensor() -> None:
    held = weights()
    watched = WatchedWeights(range(4), held)
    held[0].data = torch.zeros(6, 5)
    assert watched.change(held) == "other tensors"
    assert not watched.are_in_use(held)


@examples(60)
@given(size=st.integers(1, 5000), factor=st.floats(1.001, 3))
def test_a_step_of_an_optimizer_past_autograd_is_seen(size: int, factor: float) -> None:
    weight = torch.linspace(1, 2, size)
    watched = WatchedWeights([0], [weight])
    assert len(watched._sampled()[0]) <= 4 * 2 * SAMPLES
    weight.data *= factor
    assert watched.change([weight]) == "content"


def test_what_cannot_be_watched() -> None:
    with torch.inference_mode():
        uncounted = torch.ones(3)
    assert is_watchable(torch.ones(3)) and is_watchable(torch.ones(2, 3).t())
    for item in (uncounted, torch.ones(1).expand(3), torch.ones(6)[::2], torch.ones(0), 3, None):
        assert not is_watchable(item)
