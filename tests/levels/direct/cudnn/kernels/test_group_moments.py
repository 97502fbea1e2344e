"""Moments of a few large groups, and their gradients, in one launch each, on this processor against
float64; plans of networks that normalise whole images."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from golow.levels.direct.cudnn.operators.group_norm import gradients_of_images, moments_of_images
from golow.levels.direct.cudnn.shared_kernels import Kernel
from golow.lower.operators.group_norm import GroupMoments, GroupNormGradients
from golow.records.workload import Mode
from support.direct.cuda_host import run_sums
from support.direct.cudnn_plans import built
from support.direct.kernel_compilation import assert_compile
from support.direct.kernel_launches import drawn

# Of an image that takes several blocks, with parts of the rows of two tiles.
ROWS, CHANNELS, GROUPS = 1500, 72, 2
IMAGES, EPSILON = 2, 1e-2
SIZES = (IMAGES, ROWS, CHANNELS)


def seen(*tensors: Tensor) -> list[np.ndarray | None]:
    return [tensor.view(-1).view(torch.uint8).numpy() for tensor in tensors]


def kernels() -> Iterator[Kernel]:
    yield moments_of_images("float16", SIZES, GROUPS, EPSILON).kernel
    yield gradients_of_images("float32", "bfloat16", SIZES, GROUPS).kernel


def test_they_compile() -> None:
    assert_compile(kernels())


@pytest.mark.slow
def test_moments_and_gradients_in_one_launch_each() -> None:
    sizes, channels, groups = SIZES, CHANNELS, GROUPS
    x, gradient = (drawn(*sizes, dtype="bfloat16", seed=seed) for seed in (0, 1))
    x = x + 30
    moments = [torch.empty(IMAGES, channels) for _ in range(2)]
    sums, weight = torch.empty(2, IMAGES, channels), drawn(channels)
    launch = moments_of_images("bfloat16", sizes, groups, EPSILON)
    run_sums(launch, seen(x), seen(*moments, sums))
    image, outer = (t.double().transpose(1, 2)[..., None] for t in (x, gradient))
    expected = GroupMoments.meaning(image, groups, EPSILON)
    for one, wanted in zip(moments, expected, strict=True):
        torch.testing.assert_close(one.double(), wanted.flatten(1), rtol=1e-5, atol=0)

    found = [torch.empty(IMAGES, channels) for _ in range(3)]
    launch = gradients_of_images("bfloat16", "bfloat16", sizes, groups)
    run_sums(launch, seen(gradient, x, *moments, weight), seen(sums, *found))
    wide = (t.double()[..., None, None] for t in moments)
    gradients = GroupNormGradients.meaning(outer, image, *wide, weight.double(), groups)
    for one, wanted in zip(
        (*found, sums[1], sums[0]), (*gradients[:3], *gradients[5:]), strict=True
    ):
        exact = wanted.reshape(one.shape)
        limit = 1e-5 * max(float(exact.abs().max()), 1.0)
        torch.testing.assert_close(one.double(), exact, rtol=1e-4, atol=limit)


@pytest.mark.parametrize(("mode", "groups", "launches"), [("infer", 1, 1), ("train", 1, 2)])
def test_few_groups_of_a_large_image_are_one_launch(mode: Mode, groups: int, launches: int) -> None:
    """In training the sums of the vectors over all images are another one."""
    layers = (nn.Conv2d(3, 64, 1), nn.GroupNorm(groups, 64), nn.Conv2d(64, 4, 56), nn.Flatten())
    made, _ = built(nn.Sequential(*layers), mode, "bf16", 2, 3, 56, 56)
    operation = "group_moments" if mode == "infer" else "group_norm_gradients"
    assert [step.operation for step in made.plan.steps].count(operation) == launches
