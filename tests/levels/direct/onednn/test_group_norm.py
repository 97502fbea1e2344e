"""Group norm and instance norm of images at `onednn`, in every layout, with and without a
compiler."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from golow.levels.compiler import find_compiler
from golow.levels.direct.onednn.level import probe
from golow.lower.operators.group_norm import GroupMoments, GroupNormGradients
from golow.lower.plan.memory_traffic import moves_only

if not probe().available:
    pytest.skip("oneDNN is not installed", allow_module_level=True)

from golow.levels.direct.onednn.bindings.constants import ANY, CHANNELS_LAST
from golow.levels.direct.onednn.bindings.library import channel_block
from support.direct.in_process import assert_right
from support.direct.onednn_in_process import Running, compute, lower
from support.graphs.lowering import count

pytestmark = pytest.mark.skipif(find_compiler() is None, reason="there is no C++ compiler")

CHANNELS = 32
LAYOUTS = {"the library's": ANY, "channels last": CHANNELS_LAST, "blocks": channel_block().tag}
NORMS = {
    "one group": lambda: nn.GroupNorm(1, CHANNELS),
    "groups": lambda: nn.GroupNorm(8, CHANNELS),
    "plain groups": lambda: nn.GroupNorm(4, CHANNELS, affine=False),
    "instances": lambda: nn.InstanceNorm2d(CHANNELS, affine=True),
}


class Block(nn.Sequential):
    """A norm and its SiLU between convolutions."""

    def __init__(self, norm: str) -> None:
        super().__init__(
            nn.Conv2d(3, CHANNELS, 3, padding=1), NORMS[norm](), nn.SiLU(),
            nn.Conv2d(CHANNELS, 8, 3, padding=1),
        )  # fmt: skip


def image() -> Tensor:
    torch.manual_seed(0)
    return torch.randn(3, 3, 9, 7) + 1


@pytest.mark.parametrize("generates", [True, False])
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("norm", NORMS)
def test_a_norm_is_right(norm: str, layout: str, generates: bool) -> None:
    network = lower(Block(norm), image(), "infer")
    assert count(network.graph, GroupMoments) == 1
    assert_right(network, compute(network, lambda _: LAYOUTS[layout], generates))


def test_a_norm_far_from_zero_is_right() -> None:
    network = lower(nn.Sequential(nn.GroupNorm(4, 8)), torch.randn(2, 8, 30, 40) + 300, "infer")
    assert_right(network, compute(network))


@pytest.mark.parametrize("layout", ["channels last", "blocks"])
def test_a_norm_reads_an_image_as_it_lies(layout: str) -> None:
    """Once for its moments and once for all else."""
    network = lower(Block("groups"), image(), "infer")
    steps = Running(network, lambda _: LAYOUTS[layout]).built.plan.steps
    assert [s.operation for s in steps if s.operation in ("group_moments", "fused")] == [
        "group_moments", "group_moments", "fused",
    ]  # fmt: skip
    wide = [s for s in steps if any(o.shape == (3, CHANNELS, 9, 7) for o in s.reads)]
    assert not any(map(moves_only, wide))


@pytest.mark.parametrize("generates", [True, False])
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("norm", NORMS)
def test_training_is_right(norm: str, layout: str, generates: bool) -> None:
    module = nn.Sequential(Block(norm), nn.AdaptiveAvgPool2d(1), nn.Flatten())
    network = lower(module, image(), "train")
    assert count(network.graph, GroupNormGradients) == 1
    assert_right(network, compute(network, lambda _: LAYOUTS[layout], generates))
