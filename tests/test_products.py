"""Products of a batch with one matrix become one product of all rows."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor, nn

from golow.lower.graph import Graph
from golow.lower.operators.matrix_product import MatrixProduct
from golow.lower.passes import eliminate_dead_code
from golow.lower.products import join_rows
from golow.lower.vendor import CANONICAL
from lowering import Case, assert_close, count, records

BEFORE = CANONICAL[: CANONICAL.index(join_rows)]


class Turned(nn.Module):
    """A batch that is not contiguous, times a matrix."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(6, 4))

    def forward(self, x: Tensor) -> Tensor:
        return x.transpose(0, 1) @ self.weight


class Both(nn.Module):
    """Each matrix of the batch with its own."""

    def forward(self, x: Tensor) -> Tensor:
        return x @ x.transpose(1, 2)


class Halves(nn.Module):
    """Two matrices, each for half of the batch."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(2, 1, 6, 4))

    def forward(self, x: Tensor) -> Tensor:
        return torch.bmm(x, self.weight.expand(2, 2, 6, 4).reshape(4, 6, 4))


@pytest.mark.parametrize("length", [1, 3])
def test_rows_of_a_batch_are_multiplied_at_once(length: int) -> None:
    case = Case(Turned(), torch.randn(length, 5, 6))
    graph = case.after(*CANONICAL)
    (product,) = records(graph, MatrixProduct)
    assert graph.values()[product.a.name].shape == (5 * length, 6)
    assert_close(case.run(graph), case.run(case.graph), "rows")


def largest(graph: Graph) -> int:
    """Elements of the largest value."""
    return max(math.prod(value.shape) for value in graph.values().values())


def test_a_recurrent_layer_does_not_repeat_its_weight() -> None:
    case = Case(nn.LSTM(16, 16, batch_first=True), torch.randn(2, 12, 16))
    repeated = largest(case.after(*BEFORE))
    joined = largest(case.after(*CANONICAL, eliminate_dead_code))
    assert joined < repeated


@pytest.mark.parametrize("module", [Both(), Halves()])
def test_different_matrices_stay(module: nn.Module) -> None:
    graph = Case(module, torch.randn(4, 3, 6)).after(*CANONICAL)
    assert count(graph, MatrixProduct) == 1
    (product,) = records(graph, MatrixProduct)
    assert len(graph.values()[product.a.name].shape) == 3
