"""Linear layers over an axis of a few elements that is not the innermost one are functions of its
elements."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from golow.lower.fuse.short_products import mix_few_elementwise
from golow.lower.ir.graph import Graph
from golow.lower.operators.linear import Linear
from golow.lower.to_vocabulary import CANONICAL
from support.graphs.lowering import Case, count

Function = Callable[[nn.Linear, Tensor], Tensor]


class Mixed(nn.Module):
    """A function of a linear layer and the input [2, 3, 4, 5]."""

    def __init__(self, function: Function, features: int, outputs: int, bias: bool) -> None:
        super().__init__()
        self.function, self.layer = function, nn.Linear(features, outputs, bias)

    def forward(self, x: Tensor) -> Tensor:
        return self.function(self.layer, x).sin()


def mixed(function: Function, features: int = 3, outputs: int = 3, bias: bool = True) -> Graph:
    """The graph after the pass; it means what it meant before."""
    torch.manual_seed(0)
    case = Case(Mixed(function, features, outputs, bias), torch.randn(2, 3, 4, 5))
    return case.after(*CANONICAL, mix_few_elementwise)


def heads(layer: nn.Linear, x: Tensor) -> Tensor:
    return layer(x.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("outputs", [1, 2, 4])
def test_heads_are_mixed_by_functions(outputs: int, bias: bool) -> None:
    assert count(mixed(heads, outputs=outputs, bias=bias), Linear) == 0


@pytest.mark.parametrize("axis", [0, 2])
def test_any_axis_but_the_last_may_be_mixed(axis: int) -> None:
    def along(layer: nn.Linear, x: Tensor) -> Tensor:
        return layer(x.movedim(axis, -1)).movedim(-1, axis)

    assert count(mixed(along, features=(2, 3, 4)[axis]), Linear) == 0


OTHERS: dict[str, tuple[Function, int, int]] = {
    "many features": (lambda layer, x: heads(layer, x.repeat(1, 2, 1, 1)), 6, 3),
    "many outputs": (heads, 3, 5),
    "the last axis": (lambda layer, x: layer(x[..., :3]), 3, 3),
    "another place": (lambda layer, x: layer(x.movedim(1, -1)).movedim(-1, 2), 3, 3),
    "an activation": (
        lambda layer, x: layer(x.movedim(1, -1)).relu().movedim(-1, 1),
        3,
        3,
    ),
    "read twice": (lambda layer, x: (y := layer(x.movedim(1, -1))).movedim(-1, 1) + y.mean(), 3, 3),
}


@pytest.mark.parametrize("name", OTHERS)
def test_others_stay(name: str) -> None:
    assert count(mixed(*OTHERS[name]), Linear) == 1
