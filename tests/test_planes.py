"""Volumes as planes, as `cudnn` computes them: what the passes make means the same, and the plan
has every value in its place and copies no planes."""

from __future__ import annotations

from typing import Any, cast

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as some
from torch import Tensor, nn

from cuda_on_cpu import follow
from golow.lower.moving import moves_only
from golow.lower.operators.activation import Activate
from golow.lower.operators.max_pool import MaxPool, MaxPoolBackward
from golow.lower.passes import CLEAN_UP
from golow.lower.planes import norm_by_planes, pool_by_planes
from golow.lower.view_order import activate_before_views
from golow.record import Mode
from lowering import Case, assert_close, count, records
from test_cudnn_fused import drawn
from test_cudnn_plans import AskedEngines, assert_sound, built
from test_volumes import NETWORKS, conv

both_modes = pytest.mark.parametrize("mode", ["infer", "train"])


def volumes(*shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(0))


@both_modes
@pytest.mark.parametrize("name", NETWORKS)
def test_every_pass_keeps_what_it_means(name: str, mode: Mode) -> None:
    torch.manual_seed(0)
    case = Case(NETWORKS[name], volumes(2, 8, 5, 6, 7), mode=mode)
    graph = case.lowered("cudnn")
    for kind in (MaxPool, MaxPoolBackward):
        assert all(len(pool.stride) == 2 for pool in records(graph, kind))


IN_PLANS = [(name, "infer") for name in ("strided", "normed", "residual", "pooled", "transposed")]
IN_PLANS += [(name, "train") for name in ("strided", "pooled", "transposed", "dilated")]


@pytest.mark.parametrize(("name", "mode"), IN_PLANS)
def test_every_value_is_where_the_plan_says(name: str, mode: Mode) -> None:
    torch.manual_seed(0)
    graph = Case(NETWORKS[name], volumes(2, 8, 5, 6, 7), mode=mode).lowered("cudnn")
    tensors = {item.value.name: drawn(item.value) for item in graph.inputs}
    follow(graph, cast("Any", AskedEngines()), tensors)


class Pooled(nn.Module):
    """Pooling whose input has a gradient."""

    def __init__(self, **settings: Any) -> None:
        super().__init__()
        self.scale, self.pool = nn.Parameter(torch.ones(3, 1, 1, 1)), nn.MaxPool3d(**settings)

    def forward(self, x: Tensor) -> Tensor:
        return self.pool(x * self.scale).flatten(1)


@settings(max_examples=25, deadline=None)
@given(
    some.lists(some.integers(1, 3), min_size=3, max_size=3),
    some.lists(some.integers(1, 3), min_size=3, max_size=3),
    some.booleans(), some.booleans(), some.integers(1, 2), some.sampled_from(["infer", "train"]),
)  # fmt: skip
def test_pooling_of_any_window(
    kernel: list[int], stride: list[int], padded: bool, ceil: bool, apart: int, mode: Mode
) -> None:
    """Of few different numbers: many elements of a window are equal."""
    sides = [size // 2 for size in kernel] if padded else [0, 0, 0]
    module = Pooled(
        kernel_size=tuple(kernel), stride=tuple(stride), padding=tuple(sides), dilation=apart,
        ceil_mode=ceil,
    )  # fmt: skip
    x = torch.randint(0, 3, (2, 3, 6, 5, 7), generator=torch.Generator().manual_seed(0)).float()
    case = Case(module, x, mode=mode)
    graph = case.after(*CLEAN_UP, pool_by_planes)
    assert count(graph, MaxPool) == 1 + any(n != 1 for n in (kernel[0], stride[0]))
    assert_close(case.run(graph), case.run(case.graph), "pooling")


@settings(max_examples=20, deadline=None)
@given(
    some.integers(1, 3), some.integers(1, 3), some.integers(0, 3), some.integers(1, 2),
    some.sampled_from(["infer", "train"]),
)  # fmt: skip
def test_convolutions_of_any_depth(
    kernel: int, stride: int, padding: int, apart: int, mode: Mode
) -> None:
    torch.manual_seed(0)
    first = conv(3, 4, 1)  # so that the input of the next one has a gradient
    next_ = nn.Conv3d(4, 6, (kernel, 2, 1), (stride, 1, 2), (padding, 1, 0), (apart, 1, 1))
    module = nn.Sequential(first, next_, nn.Flatten())
    Case(module, volumes(2, 3, 5, 4, 5), mode=mode).lowered("cudnn")


def test_indices_that_others_read_stay() -> None:
    class Both(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            y, indices = nn.functional.max_pool3d(x, 2, return_indices=True)
            return y + indices

    case = Case(Both(), volumes(2, 3, 4, 4, 4))
    assert count(case.after(*CLEAN_UP, pool_by_planes), MaxPool) == 0


def test_norms_of_images_stay() -> None:
    case = Case(nn.Sequential(nn.Conv2d(3, 4, 1), nn.BatchNorm2d(4), nn.Flatten()),
                torch.randn(2, 3, 4, 4), mode="train")  # fmt: skip
    cleaned = case.after(*CLEAN_UP)
    assert norm_by_planes(cleaned) is cleaned or len(norm_by_planes(cleaned).nodes) == len(
        cleaned.nodes
    )


class Viewed(nn.Module):
    """Activations behind views, of which one is read twice."""

    def forward(self, x: Tensor) -> Tensor:
        one = (x * 2).transpose(1, 2).reshape(4, 15).relu()
        two = (x * 3).reshape(4, 15)
        return one + two.relu() + two


def test_an_activation_goes_before_the_views_that_it_alone_reads() -> None:
    case = Case(Viewed(), torch.randn(4, 3, 5))
    graph = activate_before_views(case.lowered("onednn"))
    assert_close(case.run(graph), case.run(case.graph), "views")
    shapes = [graph.values()[item.x.name].shape for item in records(graph, Activate)]
    assert (4, 3, 5) in shapes and (4, 15) in shapes


@both_modes
def test_planes_are_not_copied(mode: Mode) -> None:
    """Between convolution, norm, activation and pooling, only padding moves them, and what a
    classifier reads."""
    module = nn.Sequential(
        conv(8, 16, 3, padding=1), nn.BatchNorm3d(16), nn.ReLU(), nn.MaxPool3d(2),
        conv(16, 16, 3, padding=1), nn.ReLU(), nn.MaxPool3d((1, 2, 2)), nn.Flatten(),
    )  # fmt: skip
    made, _ = built(module, mode, "bf16", 2, 8, 4, 8, 8)
    assert_sound(made)
    moving = {step.operation for step in made.plan.steps if moves_only(step) and not step.once}
    assert "turn" not in moving
    images = (2 * 4, 16, 8, 8)
    copies = [
        step for step in made.plan.steps
        if moves_only(step) and step.operation != "pad" and step.reads[0].shape == images
    ]  # fmt: skip
    assert not copies
