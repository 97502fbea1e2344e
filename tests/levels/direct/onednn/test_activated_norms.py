"""Batch norm in training at `onednn` with an activation that the library's primitive lacks, in
every layout, with and without a compiler."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from golow.levels.compiler import find_compiler
from golow.levels.direct.onednn.level import probe

if not probe().available:
    pytest.skip("oneDNN is not installed", allow_module_level=True)

from golow.levels.direct.onednn.bindings.constants import ANY, CHANNELS_LAST
from golow.levels.direct.onednn.bindings.library import channel_block
from support.direct.in_process import assert_right
from support.direct.onednn_in_process import Running, compute, lower

pytestmark = pytest.mark.skipif(find_compiler() is None, reason="there is no C++ compiler")

CHANNELS = 32
LAYOUTS = {"the library's": ANY, "channels last": CHANNELS_LAST, "blocks": channel_block().tag}
# Gradients that read the argument, its sign, the result, and the argument within limits.
FUNCTIONS = {
    "silu": nn.SiLU(), "leaky_relu": nn.LeakyReLU(0.1), "tanh": nn.Tanh(), "clip": nn.ReLU6(),
}  # fmt: skip


class Block(nn.Sequential):
    """A norm and its activation between convolutions."""

    def __init__(
        self, activation: nn.Module, affine: bool = True, channels: int = CHANNELS
    ) -> None:
        super().__init__(
            nn.Conv2d(3, channels, 3, padding=1), nn.BatchNorm2d(channels, affine=affine),
            activation, nn.Conv2d(channels, 8, 3, padding=1), nn.AdaptiveAvgPool2d(1), nn.Flatten(),
        )  # fmt: skip


def image() -> Tensor:
    torch.manual_seed(0)
    return 2 * torch.randn(3, 3, 9, 7) + 1


@pytest.mark.parametrize("layout", LAYOUTS)
def test_training_is_right_in_every_layout(layout: str) -> None:
    network = lower(Block(nn.SiLU()), image(), "train")
    assert_right(network, compute(network, lambda _: LAYOUTS[layout]))


@pytest.mark.slow
@pytest.mark.parametrize("affine", [True, False])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_training_is_right_by_every_function(name: str, affine: bool) -> None:
    network = lower(Block(FUNCTIONS[name], affine, channels=6), image(), "train")
    for generates in (True, False):
        assert_right(network, compute(network, lambda _: CHANNELS_LAST, generates))


def test_training_on_vectors_is_right() -> None:
    torch.manual_seed(0)
    layers = (nn.Linear(6, 20), nn.BatchNorm1d(20), nn.SiLU(), nn.Linear(20, 3))
    network = lower(nn.Sequential(*layers), torch.randn(9, 6), "train")
    assert_right(network, compute(network))


def test_neither_direction_stores_the_activations_argument() -> None:
    network = lower(Block(nn.SiLU()), image(), "train")
    steps = Running(network, lambda _: CHANNELS_LAST).built.plan.steps
    found = [s.operation for s in steps if s.modules[0] in ("1", "2") and not s.once]
    assert found.count("batch_norm") == found.count("batch_norm_backward") == 3
    assert not {"activate", "activate_backward", "fused", "reorder"} & set(found)
    wide = [s for s in steps if s.operation == "batch_norm_backward"]
    moved = sum(o.shape == (3, CHANNELS, 9, 7) for s in wide for o in (*s.reads, *s.writes))
    assert moved == 5  # two reads of the gradient and of x, one write
