"""Plans of `cudnn` for training with batch norms whose results are joined, as in Inception and CSP
networks: they are written where they are joined, and their gradients are read there."""

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


class Branches(nn.Module):
    """An activation of a norm, and one of a sum with a norm, joined. The first is read again."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 1)
        self.first, self.second = nn.Conv2d(8, 16, 1, bias=False), nn.Conv2d(16, 8, 1, bias=False)
        self.norms = nn.ModuleList(nn.BatchNorm2d(n) for n in (16, 8))
        for norm in self.norms:
            norm.num_batches_tracked = None  # `follow` does not count
        self.last, self.head = nn.Conv2d(24, 8, 1), nn.Linear(8, 5)

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x)
        first = functional.relu(self.norms[0](self.first(x)))
        second = functional.relu(self.norms[1](self.second(first)) + x)
        y = self.last(torch.cat([first, second], 1))
        return self.head(y.mean((2, 3)))


def test_only_what_a_layer_reads_again_is_copied() -> None:
    made, _ = built(Branches(), "train", "bf16", *SHAPE)
    assert_sound(made)
    moved = [step for step in made.plan.steps if step.operation in ("concatenate", "copy")]
    assert [(step.phase, step.operation) for step in moved] == [("forward", "concatenate")]
    assert [operand.shape for operand in moved[0].reads] == [(2, 16, 8, 8)]
    code = [call.kernel.code for call in made.calls if isinstance(call, KernelCall)]
    assert sum("#define RESULT_PITCH (24)" in text for text in code) == 1
    gradients = ("#define GRADIENT_PITCH (24)", "#define SECOND_PITCH (24)")
    assert sum(any(text in one for text in gradients) for one in code) == 2


@pytest.mark.slow
def test_every_value_is_where_the_plan_says() -> None:
    torch.manual_seed(0)
    graph = lowered(Branches(), "train", SHAPE)
    tensors = {item.value.name: drawn(item.value) for item in graph.inputs}
    follow(graph, cast("Engines", AskedEngines()), tensors)
