"""Where oneDNN has only its generic code, which takes one element at a time, `onednn` has kernels
of its own: ranges of blocks, rolled images, sums over images in blocks, gradients of images that
were made larger or smaller."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from golow.levels.direct.onednn.level import probe

if not probe().available:
    pytest.skip("oneDNN is not installed", allow_module_level=True)

from golow.levels.direct.onednn.bindings.library import channel_block
from golow.records.workload import Mode
from support.direct.in_process import Network, assert_right
from support.direct.onednn_in_process import LAYOUTS, Running, compute, lower

BLOCK = channel_block().size
GENERIC = ("simple", "ref", "numpy", "x64:gemm")
OPERATIONS = (
    "reorder", "slice", "reduce", "resample_backward", "concatenate", "pixel_unshuffle",
    "convolution_backward_weights",
)  # fmt: skip


class Joined(nn.Module):
    """Results that are joined, and two halves that go their own ways: backward, each gradient is a
    range of channels."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Conv2d(3, 2 * BLOCK, 3), nn.Conv2d(2 * BLOCK, 2 * BLOCK, 1)
        self.last = nn.Linear(3 * BLOCK, 5)

    def forward(self, x: Tensor) -> Tensor:
        x = self.first(x)
        one, other = torch.cat([x, self.second(x).relu()], 1).split([BLOCK, 3 * BLOCK], 1)
        return self.last(other.mean((2, 3))) + one.mean((1, 2, 3))[:, None]


class Gated(nn.Module):
    """Channels that are weighted by what their means say: backward, the gradient of a weight is a
    sum over an image. The sum over all images is the gradient of a shift."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.gate = nn.Conv2d(3, 2 * BLOCK, 3), nn.Conv2d(2 * BLOCK, 2 * BLOCK, 1)
        self.shift = nn.Parameter(torch.zeros(1, 2 * BLOCK, 1, 1))
        self.last = nn.Conv2d(2 * BLOCK, 5, 1)

    def forward(self, x: Tensor) -> Tensor:
        x = self.first(x) + self.shift
        return self.last(x * self.gate(x.mean((2, 3), keepdim=True)).sigmoid()).sum((2, 3))


class Rolled(nn.Module):
    """An image of tokens whose rows and columns are shifted, as in Swin."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(24, 24), nn.Linear(24, 5)

    def forward(self, x: Tensor) -> Tensor:
        x = self.first(x).roll((-3, -3), (1, 2))
        return self.last(x.roll((2, 1), (1, 2)).mean((1, 2)))


class Resampled(nn.Module):
    """An image in twice the size and in an odd one, linearly, and with each pixel repeated."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Conv2d(3, BLOCK, 3), nn.Linear(BLOCK, 5)

    def forward(self, x: Tensor) -> Tensor:
        x = self.first(x)
        for size in ((12, 16), (7, 5)):
            x = functional.interpolate(x, size, mode="bilinear", align_corners=False)
        x = functional.interpolate(x, scale_factor=(2, 3)).tanh()
        return self.last((x * x).mean((2, 3)))


class ResampledVolume(nn.Module):
    """A volume in twice the size, linearly."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Conv3d(2, BLOCK, 1), nn.Linear(BLOCK, 5)

    def forward(self, x: Tensor) -> Tensor:
        x = functional.interpolate(self.first(x), scale_factor=2, mode="trilinear").tanh()
        return self.last((x * x).mean((2, 3, 4)))


class JoinedLayouts(nn.Module):
    """An image of a convolution beside one of a linear layer over pixels, which lies differently,
    and with a token before its pixels."""

    def __init__(self, token: bool = False) -> None:
        super().__init__()
        self.with_token = token
        self.conv, self.pixels = nn.Conv2d(3, BLOCK, 1), nn.Linear(3, BLOCK)
        self.token = nn.Parameter(torch.randn(1, 1, 2 * BLOCK))
        self.last = nn.Linear(2 * BLOCK, 5)

    def forward(self, x: Tensor) -> Tensor:
        other = self.pixels(x.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)
        tokens = torch.cat([self.conv(x), other.tanh()], 1).flatten(2).transpose(1, 2)
        if self.with_token:
            tokens = torch.cat([self.token.expand(len(x), -1, -1), tokens], 1)
        return self.last(tokens.tanh().square().mean(1))


class Shuffled(nn.Module):
    """Channels as pixels, as in super-resolution, and pixels as channels."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Conv2d(3, 4 * BLOCK, 3), nn.Linear(4 * BLOCK, 5)

    def forward(self, x: Tensor) -> Tensor:
        larger = functional.pixel_shuffle(self.first(x), 2).tanh()
        return self.last(functional.pixel_unshuffle(larger * larger, 2).mean((2, 3)))


class Depthwise(nn.Module):
    """Kernels of one channel that are wide or larger than their images, with strides and holes."""

    def __init__(self) -> None:
        super().__init__()
        wide = 2 * BLOCK
        self.first, self.last = nn.Conv2d(3, wide, 1), nn.Linear(wide, 5)
        self.layers = nn.Sequential(
            nn.Conv2d(wide, wide, 5, padding=2, groups=wide),
            nn.Tanh(),
            nn.Conv2d(wide, wide, (3, 7), (2, 1), (1, 3), groups=wide, bias=False),
            nn.Conv2d(wide, wide, 3, padding=2, dilation=2, groups=wide),
        )

    def forward(self, x: Tensor) -> Tensor:
        return self.last(self.layers(self.first(x)).tanh().mean((2, 3)))


SUBJECTS = {
    "shuffled": (Shuffled, (2, 3, 8, 6)),
    "joined layouts": (JoinedLayouts, (2, 3, 7, 9)),
    "depthwise": (Depthwise, (2, 3, 4, 4)),
    "joined": (Joined, (2, 3, 10, 10)),
    "gated": (Gated, (2, 3, 10, 10)),
    "rolled": (Rolled, (2, 8, 8, 24)),
    "resampled": (Resampled, (2, 3, 8, 10)),
    "volume": (ResampledVolume, (2, 2, 3, 4, 5)),
}


def generic_steps(network: Network, layout: str) -> list[tuple[str, str, list[str]]]:
    return [
        (step.operation, step.implementation, [read.layout for read in step.reads])
        for step in Running(network, lambda _: LAYOUTS[layout]).built.plan.steps
        if step.operation in OPERATIONS
        and step.implementation.startswith(("simple", "ref", "numpy"))
    ]


@pytest.mark.parametrize("mode", ["infer", "train"])
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("name", SUBJECTS)
def test_no_step_runs_generic_code(name: str, layout: str, mode: Mode) -> None:
    torch.manual_seed(0)
    make, shape = SUBJECTS[name]
    network = lower(make(), torch.randn(shape), mode)

    assert generic_steps(network, layout) == []
    assert_right(network, compute(network, lambda _: LAYOUTS[layout]))


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_part_of_weights_alone_is_joined_in_each_iteration(layout: str) -> None:
    torch.manual_seed(0)
    network = lower(JoinedLayouts(token=True), torch.randn(2, 3, 7, 9), "infer")
    assert not generic_steps(network, layout)
    assert_right(network, compute(network, lambda _: LAYOUTS[layout]))


class Enlarged(nn.Module):
    """Scores of classes for each pixel of a larger image."""

    def __init__(self) -> None:
        super().__init__()
        self.classes = nn.Conv2d(3, 5, 1)

    def forward(self, x: Tensor) -> Tensor:
        return functional.interpolate(self.classes(x), scale_factor=2, mode="bilinear")


def test_channels_of_a_resampled_pixel_are_computed_together() -> None:
    """Also where the gradient comes row-major, as from a loss."""
    torch.manual_seed(0)
    network = lower(Enlarged(), torch.randn(2, 3, 6, 7), "train")
    steps = Running(network).built.plan.steps
    [step] = [step for step in steps if step.operation == "resample_backward"]
    assert step.reads[0].layout == "acdb"
    assert_right(network, compute(network))


def test_gradients_of_wide_depthwise_weights_are_generated() -> None:
    """In every layout, whatever the library has for them."""
    network = lower(Depthwise(), torch.randn(2, 3, 4, 4), "train")
    for tag in LAYOUTS.values():
        steps = Running(network, lambda _, tag=tag: tag).built.plan.steps
        made = {s.modules[0]: s.implementation for s in steps if "backward_weights" in s.operation}
        own = {made[name] for name in made if name.startswith("layers")}
        assert own == {"generated"}
