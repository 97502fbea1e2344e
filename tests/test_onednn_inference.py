"""What `onednn` spares in inference: passes over memory that a primitive beside them can make."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from golow.levels.vendor.onednn import probe

if not probe().available:
    pytest.skip("oneDNN is not installed", allow_module_level=True)

from golow.levels.vendor.onednn.library import channel_block
from golow.lower.plan import Step
from in_process import assert_right
from onednn_in_process import LAYOUTS, Running, compute, lower


def steps(running: Running) -> list[Step]:
    """Those of an iteration."""
    return [step for step in running.built.plan.steps if not step.once]


# ---------------------------------------------------------------- layers that normalise first


class Dense(nn.Module):
    """Two layers of a dense block: norm and relu before the convolution, and every result joined
    to what came before. growth: channels of a layer."""

    def __init__(self, growth: int) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 32, 3, padding=1)
        wide = (32, 32 + growth)
        self.norms = nn.ModuleList(nn.BatchNorm2d(channels) for channels in wide)
        self.convs = nn.ModuleList(nn.Conv2d(n, growth, 3, padding=1) for n in wide)

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x)
        for norm, conv in zip(self.norms, self.convs, strict=True):
            x = torch.cat([x, conv(torch.relu(norm(x)))], 1)
        return x


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("growth", [channel_block().size, 12])
def test_norms_before_convolutions(growth: int, layout: str) -> None:
    """Also where the joined channels fill no whole blocks."""
    torch.manual_seed(0)
    network = lower(Dense(growth), torch.randn(2, 3, 8, 8), "infer")
    assert_right(network, compute(network, lambda _: LAYOUTS[layout]))


def test_joined_blocks_stay_blocks() -> None:
    """Neither a relu of its own nor a reorder between layers."""
    network = lower(Dense(channel_block().size), torch.randn(2, 3, 8, 8), "infer")
    found = [step.operation for step in steps(Running(network, lambda _: LAYOUTS["blocked"]))]
    layer = ["batch_norm_inference", "convolution", "concatenate"]
    assert found == ["convolution", *layer, *layer]
