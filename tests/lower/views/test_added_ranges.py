"""What is padded with zeros and then added is added to the range that it covers."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import pad

from golow.lower.ir.graph import Graph
from golow.lower.operators.concatenate import Concatenate
from golow.lower.operators.pad import Pad
from golow.lower.to_vocabulary import CANONICAL
from golow.lower.views.added_ranges import add_to_ranges
from support.graphs.lowering import Case, count, record

Function = Callable[[Tensor], Tensor]


class Added(nn.Module):
    """The mean of a function of the input [2, 6, 4]."""

    def __init__(self, function: Function) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: Tensor) -> Tensor:
        return self.function(x).mean(-1)


def added(function: Function) -> Graph:
    """The graph after the pass; it means what it meant before."""
    torch.manual_seed(0)
    return Case(Added(function), torch.randn(2, 6, 4)).after(*CANONICAL, add_to_ranges)


JOINED: dict[str, tuple[Function, int]] = {
    "before": (lambda x: x.sin() + pad(x[:, 1:].cos(), (0, 0, 1, 0)), 2),
    "after": (lambda x: x.sin() + pad(x[:, 1:].cos(), (0, 0, 0, 1)), 2),
    "on both sides": (lambda x: pad(x[..., :1].cos(), (2, 1)) + x.sin(), 3),
    "another sample": (lambda x: x.sin() + pad(x[1:].cos(), (0, 0, 0, 0, 1, 0)), 2),
}
LEFT: dict[str, Function] = {
    "a number": lambda x: x.sin() + pad(x[:, 1:].cos(), (0, 0, 1, 0), value=1.0),
    "two axes": lambda x: x.sin() + pad(x[:, 1:, 1:].cos(), (1, 0, 1, 0)),
    "a cut": lambda x: x[:, :-1].sin() + pad(x.cos(), (0, 0, 1, -2)),
    "read twice": lambda x: x.sin() + (y := pad(x[:, 1:].cos(), (0, 0, 1, 0))) + y.mean(),
    "a function after it": lambda x: (x.sin() + pad(x[:, 1:].cos(), (0, 0, 1, 0))).relu(),
    "a repeated term": lambda x: x[:, :1].sin() + pad(x[:, 1:].cos(), (0, 0, 1, 0)),
    "a difference": lambda x: x.sin() - pad(x[:, 1:].cos(), (0, 0, 1, 0)),
}


@pytest.mark.parametrize("name", JOINED)
def test_it_is_added_to_a_range(name: str) -> None:
    function, parts = JOINED[name]
    graph = added(function)
    assert count(graph, Pad) == 0
    assert len(record(graph, Concatenate).parts) == parts


@pytest.mark.parametrize("name", LEFT)
def test_others_stay_padded(name: str) -> None:
    graph = added(LEFT[name])
    assert count(graph, Pad) == 1
    assert count(graph, Concatenate) == 0
