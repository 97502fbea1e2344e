"""Sums that products compute themselves, in training at `cudnn`."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

import pytest
import torch
from torch import Tensor, nn

from golow.lower.operators.layer_norm import LayerNormBackward
from golow.lower.operators.linear import Linear
from golow.lower.operators.matrix_product import MatrixProduct
from support.direct.cuda_on_cpu import follow
from support.direct.cudnn_plans import assert_sound, built
from support.direct.libraries_on_cpu import KnownEngines, LibrariesMachine
from support.graphs.drawn_values import drawn
from support.graphs.lowering import Case, assert_close, records

if TYPE_CHECKING:
    from golow.levels.direct.cudnn.engines.engines import Engines


class Block(nn.Module):
    """A block as transformers have it: its input is read by three layers and twice added to. The
    layers have a width at which they are not joined."""

    def __init__(self) -> None:
        super().__init__()
        self.before, self.after = nn.LayerNorm(16), nn.LayerNorm(16)
        self.three = nn.ModuleList(nn.Linear(16, 12) for _ in range(3))
        self.outer, self.up, self.down = nn.Linear(12, 16), nn.Linear(16, 32), nn.Linear(32, 16)

    def forward(self, x: Tensor) -> Tensor:
        normed = self.before(x)
        one, two, three = (layer(normed) for layer in self.three)
        x = x + self.outer(one.tanh() * two + three)
        return x + self.down(nn.functional.gelu(self.up(self.after(x))))


class Network(nn.Module):
    """Two blocks and a layer."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.blocks = nn.Linear(8, 16), nn.Sequential(Block(), Block())
        self.last = nn.Linear(16, 4)

    def forward(self, x: Tensor) -> Tensor:
        return self.last(self.blocks(self.first(x)).mean(1))


def training() -> Case:
    torch.manual_seed(0)
    return Case(Network(), torch.randn(4, 8, 8), mode="train")


@pytest.mark.slow
def test_the_numbers_stay_and_sums_are_within_products() -> None:
    case = training()
    graph = case.lowered("cudnn")
    assert_close(case.run(graph), case.run(case.graph), "sums within products")
    residuals = [r for r in records(graph, Linear) if r.residual is not None]
    added = [r for r in records(graph, MatrixProduct) if r.added is not None]
    assert len(residuals) == 4  # two sums with the input of each block
    assert len(added) == 4  # the gradients of what three layers read
    norms = records(graph, LayerNormBackward)
    assert len(norms) == 4 and all(norm.added is not None for norm in norms)


@pytest.mark.slow
def test_a_step_has_no_pass_for_a_sum_of_products() -> None:
    made, _ = built(Network(), "train", "bf16", 4, 8, 8)
    assert_sound(made)
    forward = [s.operation for s in made.plan.steps if s.phase == "forward"]
    assert forward.count("fused") == 4  # each block's functions
    # The gradient of the mean is a scale of one value; a sum reads two.
    sums = [s for s in made.plan.steps if s.operation == "fused" and len(s.reads) > 1]
    assert not [s for s in sums if s.phase == "backward" and not any(s.modules)]


@pytest.mark.slow
def test_every_value_is_where_the_plan_says() -> None:
    graph = training().lowered("cudnn")
    tensors = {item.value.name: drawn(item.value) for item in graph.inputs}
    follow(graph, cast("Engines", KnownEngines()), tensors, LibrariesMachine, limit=1e-3)


class Sums(nn.Module):
    """Sums that no product is to compute: its result has another reader, another shape, is turned,
    is the other term, or that is a function of elements."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.kind, self.layer = kind, nn.Linear(8, 8)

    def forward(self, x: Tensor) -> Tensor:
        y = self.layer(x)
        if self.kind == "two readers":
            return (y + x) * y
        if self.kind == "one row":
            return y + x[:, :1]
        if self.kind == "turned":
            return y.mT + x
        if self.kind == "a function":  # one pass over memory with the sum
            return (y + x.sin()) * x
        return (y + y) * x


@pytest.mark.parametrize("kind", ["two readers", "one row", "turned", "itself", "a function"])
def test_other_sums_stay(kind: str) -> None:
    case = Case(nn.Sequential(Sums(kind), nn.Flatten()), torch.randn(2, 8, 8), mode="train")
    assert not [r for r in records(case.lowered("cudnn"), Linear) if r.residual is not None]


class TwoProducts(nn.Module):
    """The sum of two products, and of that and another one."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.two, self.three = (nn.Linear(8, 8) for _ in range(3))

    def forward(self, x: Tensor) -> Tensor:
        return self.one(x) + self.two(x.tanh()) + self.three(x.sin())


def test_the_later_product_adds_the_earlier_one() -> None:
    case = Case(TwoProducts(), torch.randn(2, 8), mode="train")
    graph = case.lowered("cudnn")
    assert_close(case.run(graph), case.run(case.graph), "sums of products")
    forward = records(graph, Linear)
    assert [r.residual is not None for r in forward] == [False, True, True]
