"""Pooling and reductions over single elements are views, at both direct levels."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from golow.lower.operators.adaptive_average_pool import (
    AdaptiveAveragePool,
    AdaptiveAveragePoolBackward,
)
from golow.lower.operators.reduce import Reduce
from golow.lower.plan.memory_traffic import moves_only
from golow.records.workload import Mode
from support.direct.cudnn_plans import built
from support.graphs.lowering import Case, assert_close, count


class Head(nn.Module):
    """A mean over pixels and one over a single row, before a classifier."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Conv2d(3, 8, 3), nn.Linear(8, 2)

    def forward(self, x: Tensor) -> Tensor:
        x = nn.functional.adaptive_avg_pool2d(self.first(x).relu(), 1)
        return self.last(x.flatten(1).unsqueeze(1).mean(1))


@pytest.mark.parametrize("level", ["cudnn", "onednn"])
@pytest.mark.parametrize("mode", ["infer", "train"])
@pytest.mark.parametrize("side", [3, 5])
def test_a_mean_of_one_element_is_a_view(side: int, mode: Mode, level: str) -> None:
    torch.manual_seed(0)
    case = Case(Head(), torch.randn(2, 3, side, side), mode=mode)
    graph = case.lowered(level)
    assert_close(case.run(graph), case.run(case.graph), "means")
    pooled = int(side == 5)
    assert count(graph, AdaptiveAveragePool) == pooled
    assert count(graph, AdaptiveAveragePoolBackward) <= pooled
    if mode == "infer":
        assert count(graph, Reduce) == 0


def test_it_takes_no_step() -> None:
    made, _ = built(Head(), "infer", "bf16", 2, 3, 3, 3)
    steps = [step for step in made.plan.steps if not step.once]
    assert [step.operation for step in steps if not moves_only(step)][-2:] == [
        "convolution", "linear",
    ]  # fmt: skip
