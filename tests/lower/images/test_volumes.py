"""Convolutions and pooling of volumes stay whole at `onednn`, forward and backward, absorb what an
image's would, and compute what PyTorch computes."""

from __future__ import annotations

import pytest
import torch

from golow.levels.direct.onednn.level import probe
from golow.lower.operators.activation import Activate
from golow.lower.operators.batch_norm import BatchNormInference
from golow.lower.operators.convolution import Convolution, ConvolutionBackward
from golow.lower.operators.max_pool import MaxPool
from golow.lower.operators.pad import Pad
from golow.lower.operators.permute import Permute
from golow.records.workload import Mode
from support.direct.in_process import assert_right
from support.graphs.lowering import Case, assert_close, count, records
from support.models.volume_networks import NETWORKS, seeded


@pytest.mark.parametrize("mode", ["infer", "train"])
@pytest.mark.parametrize("name", NETWORKS)
def test_volumes_stay_whole_and_mean_the_same(name: str, mode: Mode) -> None:
    case = Case(seeded(name), torch.randn(2, 8, 5, 6, 7), mode=mode)
    graph = case.lowered("onednn")
    assert_close(case.run(graph), case.run(case.graph), name)
    for kind in (Convolution, ConvolutionBackward, MaxPool):
        wide = [layer for layer in records(graph, kind) if len(layer.stride) != 3]
        assert not wide
    assert not count(graph, Permute)
    if mode == "infer":
        assert not count(graph, BatchNormInference) and not count(graph, Pad)
        assert count(graph, Activate) == int(name == "transposed without bias")


@pytest.mark.skipif(not probe().available, reason="oneDNN is not installed")
@pytest.mark.parametrize("mode", ["infer", "train"])
@pytest.mark.parametrize("layout", ["any", "channels_last"])  # in blocks is any, of volumes
@pytest.mark.parametrize("name", NETWORKS)
def test_a_network_is_right_in_every_layout(name: str, layout: str, mode: Mode) -> None:
    from support.direct.onednn_in_process import LAYOUTS, compute, lower

    network = lower(seeded(name), torch.randn(2, 8, 5, 6, 7), mode)
    assert_right(network, compute(network, lambda _: LAYOUTS[layout]))
