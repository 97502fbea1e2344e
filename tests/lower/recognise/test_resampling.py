"""Resizing stays whole where sizes alone say what it computes, and is right in both
directions and every layout."""

from __future__ import annotations

import pytest
import torch

from golow.levels.direct.onednn.level import probe
from golow.lower.operators.resample import Resample, ResampleBackward
from golow.records.workload import Mode
from support.direct.in_process import assert_right
from support.graphs.lowering import Case, assert_close, count
from support.models.resized_networks import WHOLE, Resized, image

LEFT = {
    "nearest, smaller": Resized(size=(3, 2)),
    "nearest, between": Resized(size=(9, 6)),
    "corners": Resized(scale_factor=2.0, mode="bilinear", align_corners=True),
    "a factor that is not the sizes'": Resized(scale_factor=2.3, mode="bilinear"),
    "cubic": Resized(scale_factor=2.0, mode="bicubic"),
}


@pytest.mark.parametrize("level", ["onednn", "cudnn"])
@pytest.mark.parametrize("mode", ["infer", "train"])
@pytest.mark.parametrize("name", WHOLE | LEFT)
def test_what_stays_whole_and_means_the_same(name: str, mode: Mode, level: str) -> None:
    torch.manual_seed(0)
    module = (WHOLE | LEFT)[name]
    case = Case(module, image(module), mode=mode)
    graph = case.lowered(level)
    # Linear weights are of float32 where they are matrices.
    assert_close(case.run(graph), case.run(case.graph), name, 1e-6)
    assert count(graph, Resample) == int(name in WHOLE)
    assert count(graph, ResampleBackward) == int(name in WHOLE and mode == "train")


@pytest.mark.skipif(not probe().available, reason="oneDNN is not installed")
@pytest.mark.parametrize("mode", ["infer", "train"])
@pytest.mark.parametrize("layout", ["any", "channels_last", "blocked"])
@pytest.mark.parametrize("name", WHOLE)
def test_a_network_is_right_in_every_layout(name: str, layout: str, mode: Mode) -> None:
    from support.direct.onednn_in_process import LAYOUTS, compute, lower

    torch.manual_seed(0)
    network = lower(WHOLE[name], image(WHOLE[name]), mode)
    assert_right(network, compute(network, lambda _: LAYOUTS[layout]))
