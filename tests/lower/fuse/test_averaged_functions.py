"""Averages of pixels before the functions that scale and shift channels, as PoolFormer has them."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from golow.lower.ir.graph import Graph
from golow.lower.ir.operator import record_of
from golow.lower.operators.adaptive_average_pool import AdaptiveAveragePool
from golow.lower.operators.average_pool import AveragePool
from golow.lower.operators.convolution import Convolution
from golow.lower.operators.reshape import Reshape
from golow.records.workload import Mode
from support.direct.cudnn_plans import built
from support.graphs.lowering import Case, assert_close

both_modes = pytest.mark.parametrize("mode", ["infer", "train"])


class Mixing(nn.Module):
    """Two blocks of PoolFormer without their second half. read: the norm's result has a reader that
    needs it in memory, too."""

    def __init__(self, pool: nn.Module, read: bool = False) -> None:
        super().__init__()
        self.first = nn.Conv2d(3, 8, 2, stride=2)
        self.norms = nn.ModuleList(nn.GroupNorm(1, 8) for _ in range(2))
        self.scales = nn.ParameterList(torch.rand(8, 1, 1) for _ in range(2))
        self.beside = nn.Conv2d(8, 8, 1) if read else None
        self.pool, self.last = pool, nn.Linear(8, 4)

    def forward(self, x: Tensor) -> Tensor:
        x = self.first(x)
        for norm, scale in zip(self.norms, self.scales, strict=True):
            y = norm(x)
            x = x + scale * (self.pool(y) - y)
            if self.beside is not None:
                x = x + self.beside(y)
        return self.last(x.mean((2, 3)))


class Ending(nn.Module):
    """A norm whose result is only averaged."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.norm = nn.Conv2d(3, 8, 3), nn.GroupNorm(2, 8)
        self.last = nn.Linear(8, 4)

    def forward(self, x: Tensor) -> Tensor:
        pooled = nn.functional.adaptive_avg_pool2d(self.norm(self.first(x)), 1)
        return self.last(pooled.flatten(1))


def pixels() -> nn.Module:
    return nn.AvgPool2d(3, 1, 1, count_include_pad=False)


def averaged(graph: Graph) -> list[str]:
    """What made the images that are averaged: the operators' kinds, through views."""
    made = {v.name: node for node in graph.nodes for v in node.outputs if v is not None}
    found = []
    for node in graph.nodes:
        record = record_of(node)
        if isinstance(record, AveragePool | AdaptiveAveragePool):
            name = record.x.name
            while name in made and isinstance(view := record_of(made[name]), Reshape):
                name = view.x.name
            found.append(type(record_of(made[name])).__name__)
    return found


@pytest.mark.slow
@both_modes
@pytest.mark.parametrize("level", ["cudnn", "onednn"])
def test_the_numbers_stay_and_what_was_normed_is_not_averaged(mode: Mode, level: str) -> None:
    torch.manual_seed(0)
    case = Case(Mixing(pixels()), torch.randn(2, 3, 12, 12), mode=mode)
    graph = case.lowered(level)  # type: ignore[arg-type]
    assert_close(case.run(graph), case.run(case.graph), "averages")
    assert averaged(graph)[0] == "Convolution"


@pytest.mark.parametrize(
    "module",
    [Mixing(nn.AvgPool2d(3, 1, 1)), Mixing(pixels(), read=True)],
    ids=["padding counts", "a layer reads it"],
)
def test_an_average_of_more_than_scaled_pixels_stays(module: nn.Module) -> None:
    graph = Case(module, torch.randn(2, 3, 12, 12)).lowered("cudnn")
    assert averaged(graph)[0] == "Binary"


@pytest.mark.slow
@both_modes
def test_a_block_writes_the_average_and_its_result(mode: Mode) -> None:
    made, _ = built(Mixing(pixels()), mode, "bf16", 2, 3, 24, 24)
    forward = [s for s in made.plan.steps if not s.once and s.phase == "forward"]
    names = [s.operation for s in forward if s.operation not in ("fetch", "turn", "cast")]
    # The mean over all pixels computes the last functions itself, unless backward reads them.
    last = "fused" if mode == "train" else "fused_reduce"
    block = ["group_moments", "average_pool"]
    assert names[1:7] == [*block, "fused", *block, last]


def test_a_norm_that_is_only_averaged_is_a_function_of_the_averages() -> None:
    made, _ = built(Ending(), "infer", "bf16", 2, 3, 24, 24)
    fused = [s for s in made.plan.steps if s.operation == "fused" and not s.once]
    assert all(operand.bytes <= 2 * 2 * 8 * 4 for s in fused for operand in s.writes)
    graph = Case(Ending(), torch.randn(2, 3, 12, 12)).lowered("cudnn")
    assert averaged(graph) == [Convolution.__name__]
