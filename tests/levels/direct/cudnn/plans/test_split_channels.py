"""Plans of `cudnn` for networks whose depthwise convolutions read and write ranges of channels, as
in MixNet: nothing is copied for them."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from golow.levels.direct.cudnn.planning import build_plan
from golow.levels.direct.cudnn.problems.precision import TYPES
from golow.records.workload import Mode
from support.direct.cuda_on_cpu import follow
from support.direct.cudnn_plans import AskedEngines, assert_sound, lowered
from support.direct.libraries_on_cpu import KnownEngines, LibrariesMachine
from support.graphs.drawn_values import drawn

if TYPE_CHECKING:
    from golow.levels.direct.cudnn.engines.engines import Engines

SHAPE = (2, 3, 8, 8)


class Mixed(nn.Module):
    """A mixed depthwise convolution (Tan and Le 2019), with a norm and SiLU after it."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 24, 1)
        self.layers = nn.ModuleList(
            nn.Conv2d(n, n, k, padding=k // 2, groups=n, bias=False) for n, k in ((16, 3), (8, 5))
        )
        self.norm, self.head = nn.BatchNorm2d(24), nn.Linear(24, 5)
        self.norm.num_batches_tracked = None  # `follow` does not count

    def forward(self, x: Tensor) -> Tensor:
        parts = functional.relu(self.stem(x)).split((16, 8), 1)
        mixed = [layer(part) for layer, part in zip(self.layers, parts, strict=True)]
        y = torch.cat(mixed, 1)
        return self.head(functional.silu(self.norm(y)).mean((2, 3)))


class Ghost(nn.Module):
    """Half of the channels by a depthwise convolution of the other half (Han et al. 2019)."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.first = nn.Conv2d(3, 8, 3), nn.Conv2d(8, 16, 1)
        self.cheap = nn.Conv2d(16, 16, 3, padding=1, groups=16)
        self.last = nn.Conv2d(32, 8, 1)

    def forward(self, x: Tensor) -> Tensor:
        x = functional.relu(self.first(self.stem(x)))
        return self.last(torch.cat([x, functional.relu(self.cheap(x))], 1))


@pytest.mark.parametrize("mode", ["infer", "train"])
def test_no_channels_are_copied(mode: Mode) -> None:
    engines = AskedEngines()
    graph = lowered(Mixed(), mode, SHAPE)
    made = build_plan(graph, cast("Engines", engines), TYPES["bf16"], 4)
    assert_sound(made)
    operations = {step.operation for step in made.plan.steps if step.phase != "update"}
    assert not operations & {"concatenate", "copy", "reshape"}
    ranges = [item for item in engines.operations if getattr(item, "of_ranges", False)]
    backward = ("backward_data", "backward_weight") if mode == "train" else ()
    assert {(item.direction, item.image_pitch, item.output_pitch) for item in ranges} == {
        (direction, 24, 24) for direction in ("forward", *backward)
    }


def test_an_activation_within_the_convolution_takes_no_step() -> None:
    graph = lowered(Ghost(), "infer", SHAPE)
    made = build_plan(graph, cast("Engines", AskedEngines()), TYPES["bf16"], 4)
    operations = [step.operation for step in made.plan.steps]
    assert operations == ["convolution"] * 4


@pytest.mark.slow
@pytest.mark.parametrize(
    ("network", "mode"), [(Mixed, "infer"), (Mixed, "train"), (Ghost, "infer")]
)
def test_every_value_is_where_the_plan_says(network: type[nn.Module], mode: Mode) -> None:
    torch.manual_seed(0)
    graph = lowered(network(), mode, SHAPE)
    tensors = {item.value.name: drawn(item.value) for item in graph.inputs}
    follow(graph, cast("Engines", KnownEngines()), tensors, LibrariesMachine)
