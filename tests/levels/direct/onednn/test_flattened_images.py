"""A linear layer that reads a flattened image in channels last: `onednn` turns the weight, once."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from golow.levels.direct.onednn.level import probe

if not probe().available:
    pytest.skip("oneDNN is not installed", allow_module_level=True)

from golow.levels.direct.onednn.operators import linear
from golow.levels.direct.onednn.operators.linear import AS_STORED
from golow.levels.direct.onednn.run import tuning
from support.direct.in_process import assert_right
from support.direct.onednn_in_process import LAYOUTS, Running, compute, lower


class Flattened(nn.Module):
    """An image whose elements are columns of a linear layer, and of another one after a pooling."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(3, 16, 3)
        self.whole, self.halved = nn.Linear(16 * 24, 8), nn.Linear(16 * 6, 8)

    def forward(self, x: Tensor) -> Tensor:
        image = self.first(x)
        halved = nn.functional.max_pool2d(image, 2)
        return self.whole(image.flatten(1)).relu() + self.halved(halved.flatten(1))


@pytest.mark.parametrize("batch", [1, 3])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_weights_are_turned_and_not_the_image(layout: str, batch: int) -> None:
    torch.manual_seed(0)
    network = lower(Flattened(), torch.randn(batch, 3, 6, 8), "infer")
    assert_right(network, compute(network, lambda _: LAYOUTS[layout]))
    found = operations(Running(network, lambda _: LAYOUTS[layout]))
    if layout == "channels_last":
        assert "reorder" not in found[1:]


@pytest.mark.parametrize(("largest", "as_stored"), [(100, False), (linear.LARGEST_TURNED, True)])
def test_a_weight_that_is_large_or_stays_as_it_is_stored_is_not_turned(
    largest: int, as_stored: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(linear, "LARGEST_TURNED", largest)
    torch.manual_seed(0)
    network = lower(Flattened(), torch.randn(3, 3, 6, 8), "infer")
    layers = tuning.linear_layers(network.graph) if as_stored else []

    def tag(position: int) -> int:
        return AS_STORED if position in layers else LAYOUTS["channels_last"]

    assert_right(network, compute(network, tag))
    assert operations(Running(network, tag))[1:].count("reorder") == 2


def operations(running: Running) -> list[str]:
    """Those of an iteration."""
    return [step.operation for step in running.built.plan.steps if not step.once]
