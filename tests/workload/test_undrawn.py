"""Modules that are built without drawing their weights."""

from __future__ import annotations

import torch
from torch import nn

from golow.workload.undrawn import Undrawn


def test_nothing_is_drawn_and_all_else_is_as_it_was() -> None:
    torch.manual_seed(0)
    drawn = torch.get_rng_state()
    with Undrawn():
        layers = nn.Sequential(nn.Linear(300, 200), nn.LayerNorm(200), nn.Embedding(50, 20))
        filled = torch.full((3,), 2.0)
        filled.normal_()
    assert torch.equal(torch.get_rng_state(), drawn)
    assert filled.tolist() == [2.0, 2.0, 2.0]
    assert layers[1].weight.tolist() == 200 * [1.0]
    expected = nn.Linear(300, 200)
    layers[0].load_state_dict(expected.state_dict())
    x = torch.randn(4, 300)
    assert torch.equal(layers[0](x), expected(x))
    assert torch.empty(5).normal_().std() > 0
