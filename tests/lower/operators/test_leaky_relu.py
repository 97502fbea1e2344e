"""leaky_relu in the vocabulary and at both direct levels. docs/extend/adding_an_operator.md shows
how it came in; the tests that go over all activations have it too."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from golow.levels.direct.cudnn import level as cudnn_level
from golow.levels.direct.cudnn import planning as cudnn
from golow.levels.direct.onednn import level as onednn_level
from golow.levels.direct.onednn import planning as onednn
from golow.lower.ir.graph import Activation
from golow.lower.operators.activation import Activate, ActivateBackward
from golow.lower.operators.batch_norm import BatchNormBackward
from golow.lower.operators.convolution import Convolution
from golow.lower.operators.linear import Linear
from golow.records.workload import Mode
from support.direct.in_process import assert_right
from support.graphs.lowering import Case, ops, records

SLOPES = [0.01, 0.3, 0.0, 1.5]
both_modes = pytest.mark.parametrize("mode", ["infer", "train"])


class Leaky(nn.Module):
    """Taken in by a convolution and by a linear layer, and on its own behind pooling and norm."""

    def __init__(self, slope: float) -> None:
        super().__init__()
        self.conv, self.norm = nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8)
        self.first, self.last = nn.Linear(8 * 4 * 4, 6), nn.Linear(6, 5)
        self.leaky = nn.LeakyReLU(slope)

    def forward(self, x: Tensor) -> Tensor:
        x = self.leaky(self.conv(x))
        x = self.leaky(nn.functional.max_pool2d(x, 2))
        x = self.leaky(self.norm(x))
        return self.last(self.leaky(self.first(torch.flatten(x, 1))))


def leaky(slope: float) -> tuple[nn.Module, Tensor]:
    torch.manual_seed(0)
    return Leaky(slope), torch.randn(4, 3, 8, 8)


@both_modes
def test_it_goes_into_layers_and_its_gradient_reads_the_result(mode: Mode) -> None:
    module, x = leaky(0.3)
    wanted = Activation(name="leaky_relu", numbers=(0.3,))
    case = Case(module, x, mode=mode)
    for level in ("onednn", "cudnn"):
        graph = case.lowered(level)  # type: ignore[arg-type]
        assert not any(op.startswith("aten.") for op in ops(graph))
        assert [layer.activation for layer in records(graph, Convolution)] == [wanted]
        assert [layer.activation for layer in records(graph, Linear)] == [wanted, None]
        assert {item.activation for item in records(graph, Activate)} == {wanted}
        gradients = records(graph, ActivateBackward)
        within = [item for item in records(graph, BatchNormBackward) if item.activation]
        assert len(gradients) + len(within) == (4 if mode == "train" else 0)
        assert all(item.activation == wanted for item in (*gradients, *within))
        assert all(item.from_result for item in gradients)
        onednn.require_runnable(graph) if level == "onednn" else cudnn.require_runnable(graph)


@both_modes
def test_a_slope_below_zero_is_unfolded(mode: Mode) -> None:
    module, x = leaky(-0.3)
    case = Case(module, x, mode=mode)
    for level, planning in (("onednn", onednn), ("cudnn", cudnn)):
        graph = case.lowered(level)  # type: ignore[arg-type]
        assert "golow.pointwise" in ops(graph)
        planning.require_runnable(graph)


@both_modes
@pytest.mark.parametrize("slope", SLOPES)
def test_onednn_computes_it(mode: Mode, slope: float) -> None:
    if not onednn_level.probe().available:
        pytest.skip("oneDNN is not installed")
    from support.direct.onednn_in_process import LAYOUTS, compute, lower

    network = lower(*leaky(slope), mode)
    for tag in LAYOUTS.values():
        assert_right(network, compute(network, lambda _, tag=tag: tag))


@pytest.mark.gpu
@both_modes
@pytest.mark.parametrize("slope", SLOPES)
def test_cudnn_computes_it(mode: Mode, slope: float, tmp_path: Path) -> None:
    if not cudnn_level.probe().available:
        pytest.skip(cudnn_level.probe().missing)
    from support.direct.cudnn_in_process import OnGpu, compute, lowered

    network = lowered(*leaky(slope), mode)
    assert_right(network, compute(network, OnGpu(tmp_path)))
