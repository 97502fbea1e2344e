"""Resizing stays whole where sizes alone say what it computes, and is right in both
directions and every layout."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from golow.levels.direct.onednn.level import probe
from golow.lower.operators.resample import Resample, ResampleBackward
from golow.records.workload import Mode
from support.in_process import assert_right
from support.lowering import Case, assert_close, count


class Resized(nn.Module):
    """A convolution, its result in another size, and another convolution."""

    def __init__(self, axes: int = 2, channels: int = 16, **settings: object) -> None:
        super().__init__()
        kind = nn.Conv2d if axes == 2 else nn.Conv3d
        self.first, self.second = kind(4, channels, 2), kind(channels, 4, 2)
        self.settings = settings

    def forward(self, x: Tensor) -> Tensor:
        y = functional.interpolate(self.first(x), **self.settings)  # type: ignore[arg-type]
        return self.second(y).flatten(1)


WHOLE = {
    "nearest, twice": Resized(scale_factor=2.0),
    "nearest, by size": Resized(size=(18, 8)),
    "nearest, thrice": Resized(channels=6, size=(18, 12)),
    "bilinear, twice": Resized(scale_factor=2.0, mode="bilinear"),
    "bilinear, by size": Resized(channels=6, size=(7, 9), mode="bilinear"),
    "bilinear, smaller": Resized(size=(4, 3), mode="bilinear"),
    "volume, nearest": Resized(3, scale_factor=2.0),
    "volume, linear": Resized(3, 6, size=(5, 7, 9), mode="trilinear"),
}
LEFT = {
    "nearest, smaller": Resized(size=(3, 2)),
    "nearest, between": Resized(size=(9, 6)),
    "corners": Resized(scale_factor=2.0, mode="bilinear", align_corners=True),
    "a factor that is not the sizes'": Resized(scale_factor=2.3, mode="bilinear"),
    "cubic": Resized(scale_factor=2.0, mode="bicubic"),
}


def image(module: Resized) -> Tensor:
    volume = isinstance(module.first, nn.Conv3d)
    return torch.randn(2, 4, *([4] if volume else []), 7, 5)


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
    from support.onednn_in_process import LAYOUTS, compute, lower

    torch.manual_seed(0)
    network = lower(WHOLE[name], image(WHOLE[name]), mode)
    assert_right(network, compute(network, lambda _: LAYOUTS[layout]))
