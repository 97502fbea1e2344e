"""Modules whose parameters are converted while they are built."""

from __future__ import annotations

import torch
from torch import nn

from golow.workload.registered_parameters import parameters_in


class Tied(nn.Module):
    """Two layers with one weight, and a buffer whose values are computed."""

    steps: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        self.embedding, self.norm = nn.Embedding(40, 8), nn.LayerNorm(8)
        self.head = nn.Linear(8, 40, bias=False)
        self.head.weight = self.embedding.weight
        self.register_buffer("steps", torch.arange(4.0))


def test_on_meta_nothing_is_drawn_and_buffers_are_computed() -> None:
    torch.manual_seed(0)
    drawn = torch.get_rng_state()
    with parameters_in("meta"):
        made = Tied()
    assert {item.device.type for item in made.parameters()} == {"meta"}
    assert made.head.weight is made.embedding.weight
    assert made.steps.tolist() == [0.0, 1.0, 2.0, 3.0]
    assert torch.equal(torch.get_rng_state(), drawn)
    assert nn.Linear(2, 2).weight.device.type == "cpu"


def test_weights_are_drawn_in_the_precision_that_they_get() -> None:
    with parameters_in(dtype=torch.bfloat16):
        made = Tied()
    assert {item.dtype for item in made.parameters()} == {torch.bfloat16}
    assert made.head.weight is made.embedding.weight
    assert made.norm.weight.tolist() == 8 * [1.0]
    assert 0.5 < made.embedding.weight.std() < 2
    assert made.steps.dtype == torch.float32
