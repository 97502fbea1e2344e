"""Products of a batch with one matrix become one product of all rows."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, cast

import pytest
import torch
from torch import Tensor, nn

from golow.levels.direct.cudnn.planning import build_plan
from golow.levels.direct.cudnn.problems.gemm import Problem
from golow.levels.direct.cudnn.problems.precision import TYPES
from golow.lower.fuse.products import (
    join_rows,
    multiply_outer_products,
    scale_products,
)
from golow.lower.ir.clean_up import eliminate_dead_code
from golow.lower.ir.graph import Graph
from golow.lower.operators.binary import Binary
from golow.lower.operators.matrix_product import MatrixProduct
from golow.lower.operators.pointwise import Pointwise
from golow.lower.to_vocabulary import CANONICAL
from support.direct.cudnn_plans import AskedEngines, lowered
from support.graphs.lowering import Case, DirectLevel, assert_close, count, records

if TYPE_CHECKING:
    from golow.levels.direct.cudnn.engines.engines import Engines

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


@pytest.mark.slow
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


# ---------------------------------------------------------------- numbers


class Scaled(nn.Module):
    """Attention's scores with a scale. where: it multiplies an operand, or divides the result.
    again: something else reads what is scaled."""

    def __init__(self, where: str, again: bool) -> None:
        super().__init__()
        self.where, self.again = where, again

    def forward(self, x: Tensor) -> Tensor:
        a, b = x.reshape(2, 3, 2, 4).transpose(1, 2), x.reshape(2, 2, 3, 4)
        scaled = a * 0.5 if self.where == "operand" else a
        scores = scaled @ b.transpose(-1, -2)
        if self.where == "result":
            scaled = scores = scores / 3
        return scores + scaled.sum() if self.again else scores


class Dropped(nn.Module):
    """Attention with dropout, whose gradients read the scaled queries and keys again."""

    def __init__(self) -> None:
        super().__init__()
        self.inner, self.outer = nn.Linear(8, 24), nn.Linear(8, 4)

    def forward(self, x: Tensor) -> Tensor:
        query, key, value = (
            part.view(2, 3, 2, 4).transpose(1, 2) for part in self.inner(x).chunk(3, -1)
        )
        found = nn.functional.scaled_dot_product_attention(query, key, value, dropout_p=0.1)
        return self.outer(found.transpose(1, 2).flatten(2)).mean(1)


@pytest.mark.slow
@pytest.mark.parametrize("level", ["onednn", "cudnn"])
def test_a_scale_that_several_products_read_becomes_part_of_all(level: DirectLevel) -> None:
    case = Case(Dropped(), torch.randn(2, 3, 8), mode="train")
    graph = case.lowered(level)
    assert_close(case.run(graph), case.run(case.graph), "scales")
    scaled = [item.factor for item in records(graph, MatrixProduct) if item.factor != 1]
    assert scaled == pytest.approx([0.5] * 3)  # 1 / sqrt(4): scores, and gradients of both factors


@pytest.mark.parametrize("where", ["operand", "result"])
@pytest.mark.parametrize("again", [False, True])
def test_a_scale_becomes_part_of_the_product(where: str, again: bool) -> None:
    case = Case(Scaled(where, again), torch.randn(2, 3, 8))
    graph = case.after(*CANONICAL, scale_products, eliminate_dead_code)
    [product] = records(graph, MatrixProduct)
    scales = [item for item in records(graph, Binary) if item.function != "add"]
    moved = where == "result" or not again
    assert product.factor == pytest.approx({"operand": 0.5, "result": 1 / 3}[where] if moved else 1)
    assert len(scales) == (0 if moved else 1)


@pytest.mark.parametrize("where", ["operand", "result"])
def test_cudnn_multiplies_within_the_product(where: str) -> None:
    engines = AskedEngines()
    graph = lowered(Scaled(where, False), "infer", (2, 3, 8))
    made = build_plan(graph, cast("Engines", engines), TYPES["bf16"], 1)
    assert "fused" not in {step.operation for step in made.plan.steps}
    [problem] = engines.operations
    assert isinstance(problem, Problem)
    assert problem.factor == pytest.approx({"operand": 0.5, "result": 1 / 3}[where])


class Angles(nn.Module):
    """Of positions, as models from transformers compute them, and a product that sums."""

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        return x.unsqueeze(2) @ x.unsqueeze(1), x @ x.transpose(0, 1)


def test_an_outer_product_keeps_all_digits() -> None:
    case = Case(Angles(), torch.randn(3, 5))
    graph = case.after(*CANONICAL, multiply_outer_products, eliminate_dead_code)
    assert count(graph, MatrixProduct) == 1
    assert [item.function for item in records(graph, Pointwise)] == ["multiply"]
