"""Plans of `cudnn` for training with batch norms before activations that do not clip, squeeze and
excitation, and sums: nothing is in memory between them."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from golow.levels.direct.cudnn.steps.built_plan import KernelCall
from support.direct.cuda_on_cpu import follow
from support.direct.cudnn_plans import AskedEngines, assert_sound, built, lowered
from support.graphs.drawn_values import drawn

if TYPE_CHECKING:
    from golow.levels.direct.cudnn.engines.engines import Engines

SHAPE = (2, 3, 8, 8)
WIDE = (2, 16, 8, 8)


class Inverted(nn.Module):
    """A block of MobileNetV3 and EfficientNet with a classifier."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.first = nn.Conv2d(3, 8, 1), nn.Conv2d(8, 16, 1, bias=False)
        self.deep = nn.Conv2d(16, 16, 3, padding=1, groups=16, bias=False)
        self.last, self.head = nn.Conv2d(16, 8, 1, bias=False), nn.Linear(8, 5)
        self.squeeze, self.excite = nn.Conv2d(16, 4, 1), nn.Conv2d(4, 16, 1)
        self.norms = nn.ModuleList(nn.BatchNorm2d(n) for n in (16, 16, 8))
        for norm in self.norms:
            norm.num_batches_tracked = None  # `follow` does not count

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x)
        y = functional.silu(self.norms[0](self.first(x)))
        y = functional.hardswish(self.norms[1](self.deep(y)))
        gate = self.excite(functional.silu(self.squeeze(y.mean((2, 3), keepdim=True))))
        y = self.norms[2](self.last(y * gate.sigmoid())) + x
        return self.head(y.mean((2, 3)))


def test_nothing_is_between_norms_and_what_follows_them() -> None:
    made, _ = built(Inverted(), "train", "bf16", *SHAPE)
    assert_sound(made)
    names = [call.kernel.expression for call in made.calls if isinstance(call, KernelCall)]
    assert sum("FUNCTION" in name for name in names) == 2
    wide = [step for step in made.plan.steps if any(o.shape == WIDE for o in step.writes)]
    found = [(step.phase, step.operation) for step in wide]
    assert found.count(("forward", "fused")) == 1  # the gate
    assert found.count(("backward", "fused")) == 2  # the product with the gate again, its gradient
    assert "adaptive_average_pool_backward" not in {name for _, name in found}
    sums = [
        step for step in made.plan.steps if step.phase == "forward" and step.operation == "fused"
    ]
    assert not [step for step in sums if any(o.shape == (2, 8, 8, 8) for o in step.writes)]


@pytest.mark.slow
def test_every_value_is_where_the_plan_says() -> None:
    torch.manual_seed(0)
    graph = lowered(Inverted(), "train", SHAPE)
    tensors = {item.value.name: drawn(item.value) for item in graph.inputs}
    follow(graph, cast("Engines", AskedEngines()), tensors)
