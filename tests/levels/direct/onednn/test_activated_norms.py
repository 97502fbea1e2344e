"""Batch norm in training at `onednn` with an activation that the library's primitive lacks, in
every layout."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from golow.levels.compiler import find_compiler
from golow.levels.direct.onednn.level import probe

if not probe().available:
    pytest.skip("oneDNN is not installed", allow_module_level=True)

from golow.levels.direct.onednn.bindings.constants import ANY, CHANNELS_LAST
from golow.levels.direct.onednn.bindings.library import channel_block
from golow.levels.direct.onednn.planning import build_plan
from golow.levels.direct.onednn.steps.built_plan import Switches
from support.direct.in_process import Network, assert_right
from support.direct.onednn_in_process import ENGINE, compute, lower

pytestmark = pytest.mark.skipif(find_compiler() is None, reason="there is no C++ compiler")

CHANNELS = 32


class Block(nn.Sequential):
    """A norm and its activation between convolutions."""

    def __init__(self, activation: nn.Module, channels: int, affine: bool = True) -> None:
        super().__init__(
            nn.Conv2d(3, channels, 3, padding=1), nn.BatchNorm2d(channels, affine=affine),
            activation, nn.Conv2d(channels, 8, 3, padding=1), nn.AdaptiveAvgPool2d(1), nn.Flatten(),
        )  # fmt: skip


def image() -> Tensor:
    torch.manual_seed(0)
    return 2 * torch.randn(3, 3, 9, 7) + 1


# Channels in blocks, and first or last; gradients that read the argument, and the result.
def in_blocks() -> tuple[Network, int]:
    """And a norm of vectors."""
    vectors = (nn.Linear(8, 20), nn.BatchNorm1d(20), nn.LeakyReLU(0.1), nn.Linear(20, 3))
    module = nn.Sequential(Block(nn.SiLU(), CHANNELS), *vectors)
    return lower(module, image(), "train"), channel_block().tag


def in_planes() -> tuple[Network, int]:
    return lower(Block(nn.Tanh(), 6, affine=False), image(), "train"), ANY


@pytest.mark.slow
@pytest.mark.parametrize("make", [in_blocks, in_planes])
def test_training_is_right(make: Callable[[], tuple[Network, int]]) -> None:
    network, layout = make()
    assert_right(network, compute(network, lambda _: layout))


def test_neither_direction_stores_the_activations_argument() -> None:
    network = lower(Block(nn.SiLU(), CHANNELS), image(), "train")
    made = build_plan(network.graph, ENGINE, lambda _: CHANNELS_LAST, Switches(0), True)
    steps = made.plan.steps
    found = [s.operation for s in steps if s.modules[0] in ("1", "2") and not s.once]
    assert found.count("batch_norm") == found.count("batch_norm_backward") == 3
    assert not {"activate", "activate_backward", "fused", "reorder"} & set(found)
    wide = [s for s in steps if s.operation == "batch_norm_backward"]
    moved = sum(o.shape == (3, CHANNELS, 9, 7) for s in wide for o in (*s.reads, *s.writes))
    assert moved == 5  # two reads of the gradient and of x, one write
