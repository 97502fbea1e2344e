"""golow's own batch norm for a GPU: strategies and compilation anywhere, values on a GPU against
float64."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import product
from math import isnan
from typing import Any

import pytest
import torch
from torch import Tensor

from golow.levels.direct.cudnn.problems.element_types import ITEM_BYTES
from golow.levels.direct.cudnn.shared_kernels import Kernel
from golow.levels.direct.cudnn.shared_kernels.batch_norm import (
    SomePixels,
    batch_norm,
    batch_norm_backward,
    mask_bytes,
)
from golow.levels.direct.cudnn.shared_kernels.blocks import Launches
from golow.levels.direct.formulas.activation_formulas import NO_CLIP, RELU, Clip
from support.direct.kernel_compilation import assert_compile
from support.direct.kernel_launches import ROUNDING, TYPES, drawn, gpu, run, torch_type

__all__ = ["gpu"]  # a fixture

CLIPS: list[Clip] = [NO_CLIP, RELU, (0.0, 6.0)]
MOMENTUM, EPSILON = 0.1, 1e-5
# Rows and channels: vectors, odd channels, fewer rows than threads, clusters of 1 to 8, narrow and
# wide parts.
SHAPES = [
    (1, 64),
    (2, 3),
    (33, 24),
    (500, 10),
    (32, 2048),
    (2048, 256),
    (8192, 64),
    (3000, 264),
    (20011, 8),
    (70001, 3),
    (12544, 2048),
    (401408, 64),
]


def training(dtype: str, rows: int, channels: int, clusters: bool = True) -> Iterator[Launches]:
    yield batch_norm(dtype, rows, channels, momentum=MOMENTUM, epsilon=EPSILON, clusters=clusters)
    yield batch_norm_backward(dtype, rows, channels, clusters=clusters)


def kernels(clusters: bool = True) -> Iterator[Kernel]:
    for dtype, (rows, channels) in product(TYPES, SHAPES):
        for launches in training(dtype, rows, channels, clusters):
            yield from launches.kernels
        for masked in (False, True):
            yield from batch_norm_backward(
                dtype, rows, channels, clip=RELU, masked=masked, clusters=clusters
            ).kernels


# ------------------------------------------------------------ without a GPU


def test_every_instantiation_compiles() -> None:
    assert_compile(kernels())


def test_gpus_without_clusters_have_their_kernels() -> None:
    assert_compile(kernels(clusters=False), "sm_80")


def test_launches_are_within_the_limits_of_the_device() -> None:
    for kernel in (*kernels(), *kernels(clusters=False)):
        threads = kernel.block[0] * kernel.block[1]
        assert 32 <= threads <= 512 and threads % 32 == 0, kernel.expression
        assert 32 % kernel.block[0] == 0, "a warp has whole rows of lanes"
        assert kernel.grid[0] < 2**31 and kernel.grid[1] < 2**16 and kernel.grid[2] == 1


@pytest.mark.parametrize(
    ("rows", "channels", "launches"),
    [
        (32, 2048, 1),
        (2048, 256, 1),
        (8192, 64, 1),
        (16384, 64, 3),
        (4096, 512, 3),
        (12544, 2048, 3),
        (401408, 64, 3),
        (802816, 256, 3),
    ],
)
def test_a_small_image_is_one_launch(rows: int, channels: int, launches: int) -> None:
    for found in training("bfloat16", rows, channels):
        assert len(found.kernels) == launches
        assert bool(found.scratch) == (launches > 1)


@pytest.mark.parametrize(("rows", "channels"), SHAPES)
@pytest.mark.parametrize("dtype", TYPES)
def test_the_grid_covers_rows_and_channels(dtype: str, rows: int, channels: int) -> None:
    for launches in training(dtype, rows, channels):
        first, *others = launches.kernels
        numbers = [int(number) for number in re.findall(r"\b\d+\b", first.expression)]
        width, lanes, walkers = numbers[:3]
        assert channels % width == 0 and width * ITEM_BYTES[dtype] <= 16
        assert first.block == (lanes, walkers, 1)
        if others:
            parts, tiles, _ = first.grid
            assert launches.scratch == 2 * parts * channels
            size = -(-rows // parts)
            assert (parts - 1) * size < rows, "no part is empty"
        else:
            cluster = numbers[3]
            assert cluster in (1, 2, 4, 8)
            assert first.grid[0] % cluster == 0, "clusters are whole"
            tiles = first.grid[0] // cluster
        assert (tiles - 1) * lanes * width < channels <= tiles * lanes * width


def test_gpus_without_clusters_get_none() -> None:
    for rows, alone in ((500, True), (2048, False)):
        for launches in training("float32", rows, 256, clusters=False):
            assert launches.kernels[0].expression.endswith(", 1>") == alone
            assert len(launches.kernels) == (1 if alone else 3)


def test_an_infinite_result_is_not_clipped() -> None:
    (backward,) = batch_norm_backward("float16", 10, 8, clip=RELU).kernels
    (forward,) = batch_norm("float16", 10, 8, momentum=MOMENTUM, epsilon=EPSILON, clip=RELU).kernels
    for kernel in (backward, forward):
        low, high = kernel.scalars[2:4]
        assert low == 0 and isnan(high)


def test_what_was_clipped_is_found_where_it_can_be() -> None:
    for clip, masked, word in (
        (NO_CLIP, False, "NONE"),
        (RELU, False, "AGAIN"),
        (RELU, True, "BITS"),
    ):
        (kernel,) = batch_norm_backward("float32", 10, 8, clip=clip, masked=masked).kernels
        assert f"<float, {word}, " in kernel.expression


def test_the_mask_has_a_byte_for_each_vector() -> None:
    assert mask_bytes("bfloat16", 10, 64) == 10 * 8
    assert mask_bytes("float32", 10, 64) == 10 * 16
    assert mask_bytes("float16", 10, 7) == 10 * 7


def test_bad_arguments_are_named() -> None:
    with pytest.raises(ValueError, match="0 rows, 8 channels"):
        batch_norm("float32", 0, 8, momentum=MOMENTUM, epsilon=EPSILON)
    with pytest.raises(ValueError, match="float64"):
        batch_norm_backward("float64", 8, 8)
    with pytest.raises(ValueError, match="5 rows, 0 channels"):
        batch_norm("float32", 5, 0, momentum=MOMENTUM, epsilon=EPSILON)


# ------------------------------------------------------------ on a GPU

NOTHING = torch.empty(0)


def launch(gpu: Any, launches: Launches, tensors: list[Tensor]) -> None:
    """All kernels in order; every tensor is then what the device has."""
    scratch = torch.full((launches.scratch,), torch.nan)
    for kernel in launches.kernels:
        run(gpu, kernel, [*tensors, scratch], [])


def unset(like: Tensor) -> Tensor:
    return torch.full_like(like, torch.nan)


def normalized(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """In float64: (x - mean) / deviation, mean and 1 / deviation."""
    exact = x.double()
    mean = exact.mean(0)
    inverse = 1 / (exact.var(0, unbiased=False) + EPSILON).sqrt()
    return (exact - mean) * inverse, mean, inverse


def assert_near(found: Tensor, expected: Tensor, limit: float) -> None:
    """The largest distance, in units of the largest number."""
    size = max(float(expected.abs().max()), 1e-6)
    assert float((found.double() - expected).abs().max()) <= limit * size


def limit_of(dtype: str, rows: int) -> float:
    # Two rows that nearly agree have a deviation of few digits.
    return 4 * ROUNDING[dtype] + (1e-5 if rows > 2 else 1e-3)


@pytest.mark.gpu
@pytest.mark.parametrize(("rows", "channels"), SHAPES[:-2])
@pytest.mark.parametrize("residual", [False, True])
@pytest.mark.parametrize("clip", CLIPS)
@pytest.mark.parametrize("dtype", TYPES)
def test_training(
    gpu: Any, dtype: str, clip: Clip, residual: bool, rows: int, channels: int
) -> None:
    x = (drawn(rows, channels) + 3 * drawn(channels)).to(torch_type(dtype))
    added = drawn(rows, channels, dtype=dtype, seed=1) if residual else NOTHING
    scale, shift = drawn(channels, seed=2).abs() + 0.5, drawn(channels, seed=3)
    y, mean, inverse = unset(x), unset(scale), unset(scale)
    running_mean, running_variance = drawn(channels, seed=4), drawn(channels, seed=5).abs()
    before = running_mean.double(), running_variance.double()
    masked = residual and clip != NO_CLIP
    mask = torch.zeros(mask_bytes(dtype, rows, channels) if masked else 0, dtype=torch.uint8)
    forward = batch_norm(dtype, rows, channels, momentum=MOMENTUM, epsilon=EPSILON, clip=clip)
    statistics = [mean, inverse, running_mean, running_variance]
    launch(gpu, forward, [x, added, scale, shift, y, *statistics, mask])

    n, true_mean, true_inverse = normalized(x)
    assert_near(mean, true_mean, 1e-6)
    assert_near(inverse, true_inverse, limit_of("float32", rows))
    assert_near(running_mean, 0.9 * before[0] + 0.1 * true_mean, 1e-6)
    variance = x.double().var(0, unbiased=rows > 1)
    assert_near(running_variance, 0.9 * before[1] + 0.1 * variance, 1e-5)
    expected = n * scale.double() + shift.double() + (added.double() if residual else 0)
    assert_near(y, expected.clamp(*clip), limit_of(dtype, rows))

    gradient = drawn(rows, channels, dtype=dtype, seed=6)
    backward = batch_norm_backward(dtype, rows, channels, clip=clip, masked=masked)
    g = gradient.double() * ((y.double() > clip[0]) & (y.double() < clip[1]))
    operands = [mask, x, scale, shift, mean, inverse]
    found = gradients(gpu, backward, [gradient, NOTHING, *operands])
    assert torch.equal(found[3].double(), g)
    assert_gradients(found, g, operands)


def gradients(gpu: Any, backward: Launches, operands: list[Tensor]) -> list[Tensor]:
    """Of x, scale, shift and residual."""
    x, scale = operands[3:5]
    found = [unset(x), unset(scale), unset(scale), unset(x)]
    launch(gpu, backward, [*operands, *found])
    return found


def assert_gradients(found: list[Tensor], g: Tensor, operands: list[Tensor]) -> None:
    """g: the gradient in float64 where nothing was clipped."""
    _, x, scale, _, mean, inverse = operands
    dx, dscale, dshift, _ = found
    rows, dtype = x.shape[0], str(x.dtype).removeprefix("torch.")
    n = (x.double() - mean.double()) * inverse.double()
    sums = float(g.abs().sum(0).max()) + 1e-6
    assert float((dshift - g.sum(0)).abs().max()) <= 1e-5 * sums
    assert float((dscale - (g * n).sum(0)).abs().max()) <= 1e-5 * sums
    factor = scale.double() * inverse.double()
    exact = factor * (g - (g.sum(0) + n * (g * n).sum(0)) / rows)
    reach = float((factor * g).abs().max()) + 1e-6  # dx of few rows is a small difference
    assert float((dx.double() - exact).abs().max()) <= limit_of(dtype, rows) * reach


def clipped_image(gpu: Any, dtype: str, rows: int, channels: int) -> list[Tensor]:
    """What backward needs of a batch norm with residual and relu: gradient, mask, x, scale, shift,
    mean and inverse deviation; and its result."""
    x, gradient, residual = (drawn(rows, channels, dtype=dtype, seed=seed) for seed in range(3))
    scale, shift = drawn(channels, seed=3).abs() + 0.5, drawn(channels, seed=4)
    y, mean, inverse = unset(x), unset(scale), unset(scale)
    mask = torch.zeros(mask_bytes(dtype, rows, channels), dtype=torch.uint8)
    forward = batch_norm(dtype, rows, channels, momentum=MOMENTUM, epsilon=EPSILON, clip=RELU)
    launch(gpu, forward, [x, residual, scale, shift, y, mean, inverse, NOTHING, NOTHING, mask])
    return [gradient, mask, x, scale, shift, mean, inverse, y]


@pytest.mark.gpu
@pytest.mark.parametrize(("rows", "channels"), [(100, 24), (3000, 264), (70001, 3)])
@pytest.mark.parametrize("dtype", TYPES)
def test_the_sum_of_two_gradients(gpu: Any, dtype: str, rows: int, channels: int) -> None:
    gradient, *operands, y = clipped_image(gpu, dtype, rows, channels)
    second = drawn(rows, channels, dtype=dtype, seed=7)
    total = (gradient.float() + second.float()).to(gradient.dtype)
    backward = batch_norm_backward(dtype, rows, channels, clip=RELU, masked=True)
    found = gradients(gpu, backward, [gradient, second, *operands])
    alone = gradients(gpu, backward, [total, NOTHING, *operands])
    assert all(torch.equal(one, other) for one, other in zip(found, alone, strict=True))
    g = total.double() * (y.double() > 0)
    assert torch.equal(found[3].double(), g)
    assert_gradients(found, g, operands)


@pytest.mark.gpu
@pytest.mark.parametrize("pixels", [SomePixels(5, 6, 2, 2), SomePixels(56, 57, 1, 3)])
@pytest.mark.parametrize("dtype", TYPES)
def test_a_second_gradient_of_some_pixels(gpu: Any, dtype: str, pixels: SomePixels) -> None:
    images, channels = 7, 24
    rows = images * pixels.height * pixels.width
    gradient, *operands, _ = clipped_image(gpu, dtype, rows, channels)
    whole = torch.zeros(images, pixels.height, pixels.width, channels, dtype=gradient.dtype)
    some = whole[:, :: pixels.down, :: pixels.across]
    second = drawn(*some.shape, dtype=dtype, seed=7)
    some.copy_(second)
    backward, of_some = (
        batch_norm_backward(dtype, rows, channels, clip=RELU, masked=True, second=which)
        for which in (None, pixels)
    )
    expected = gradients(gpu, backward, [gradient, whole.reshape(rows, channels), *operands])
    found = gradients(gpu, of_some, [gradient, second, *operands])
    assert all(torch.equal(one, other) for one, other in zip(found, expected, strict=True))


@pytest.mark.gpu
@pytest.mark.parametrize(("rows", "channels"), [(100, 24), (20011, 8)])
def test_without_the_gradient_of_the_residual(gpu: Any, rows: int, channels: int) -> None:
    gradient, *operands, _ = clipped_image(gpu, "bfloat16", rows, channels)
    second = drawn(rows, channels, dtype="bfloat16", seed=7)
    backward = batch_norm_backward("bfloat16", rows, channels, clip=RELU, masked=True)
    operands = [gradient, second, *operands]
    whole = gradients(gpu, backward, operands)
    found = [unset(tensor) for tensor in whole[:3]]
    launch(gpu, backward, [*operands, *found, NOTHING])
    assert all(torch.equal(*pair) for pair in zip(found, whole[:3], strict=True))


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", TYPES)
def test_a_result_exactly_at_a_limit_has_no_gradient(gpu: Any, dtype: str) -> None:
    rows, shift = 20011, torch.tensor([-1.0, 0.0, 1.0, 2.0, 5.0, 6.0, 7.0, torch.nan])
    x = torch.ones(rows, 8, dtype=torch_type(dtype))  # without variance: y is the shift
    gradient, scale = drawn(rows, 8, dtype=dtype), torch.ones(8)
    y, mean, inverse = unset(x), unset(scale), unset(scale)
    forward = batch_norm(dtype, rows, 8, momentum=MOMENTUM, epsilon=EPSILON, clip=(0.0, 6.0))
    launch(gpu, forward, [x, NOTHING, scale, shift, y, mean, inverse, *[NOTHING] * 3])
    backward = batch_norm_backward(dtype, rows, 8, clip=(0.0, 6.0))
    operands = [gradient, NOTHING, NOTHING, x, scale, shift, mean, inverse]
    found = gradients(gpu, backward, operands)[3]
    passed = torch.tensor([0, 0, 1, 1, 1, 0, 0, 1], dtype=x.dtype)
    assert torch.equal(found, gradient * passed)


@pytest.mark.gpu
@pytest.mark.parametrize(("rows", "channels"), [(100, 16), (20011, 8)])
@pytest.mark.parametrize("clusters", [False, True])
def test_absent_operands(gpu: Any, clusters: bool, rows: int, channels: int) -> None:
    x, y = drawn(rows, channels), torch.full((rows, channels), torch.nan)
    mean, inverse = torch.empty(channels), torch.empty(channels)
    forward, backward = training("float32", rows, channels, clusters)
    launch(gpu, forward, [x, *[NOTHING] * 3, y, mean, inverse, *[NOTHING] * 3])
    n, _, true_inverse = normalized(x)
    assert_near(y, n, 1e-5)
    gradient, dx, dscale, dshift = drawn(rows, channels, seed=1), unset(x), unset(mean), unset(mean)
    operands = [gradient, NOTHING, NOTHING, x, NOTHING, NOTHING, mean, inverse]
    launch(gpu, backward, [*operands, dx, dscale, dshift, NOTHING])
    g = gradient.double()
    assert_near(dx, true_inverse * (g - g.mean(0) - n * (g * n).mean(0)), 1e-5)


@pytest.mark.gpu
def test_statistics_of_a_million_pixels_far_from_zero(gpu: Any) -> None:
    x = drawn(1_000_003, 3) + 1000
    y, mean, inverse = unset(x), torch.empty(3), torch.empty(3)
    forward = batch_norm("float32", *x.shape, momentum=MOMENTUM, epsilon=EPSILON)
    launch(gpu, forward, [x, *[NOTHING] * 3, y, mean, inverse, *[NOTHING] * 3])
    n, true_mean, true_inverse = normalized(x)
    assert_near(mean, true_mean, 2 * ROUNDING["float32"])
    assert_near(inverse, true_inverse, 1e-6)
    assert_near(y, n, 1e-4)  # a rounding of the mean is 6e-5 of a deviation


@pytest.mark.gpu
def test_repeats_bitwise(gpu: Any) -> None:
    x = drawn(70001, 8)
    results = []
    for _ in range(3):
        y, mean, inverse = unset(x), torch.empty(8), torch.empty(8)
        forward = batch_norm("float32", *x.shape, momentum=MOMENTUM, epsilon=EPSILON)
        launch(gpu, forward, [x, *[NOTHING] * 3, y, mean, inverse, *[NOTHING] * 3])
        results.append(y)
    assert torch.equal(results[0], results[1]) and torch.equal(results[0], results[2])


@pytest.mark.gpu
def test_nan_passes_the_clip(gpu: Any) -> None:
    x = drawn(10, 4)
    x[3, 1] = torch.nan
    y, mean, inverse = unset(x), torch.empty(4), torch.empty(4)
    forward = batch_norm("float32", 10, 4, momentum=MOMENTUM, epsilon=EPSILON, clip=RELU)
    launch(gpu, forward, [x, *[NOTHING] * 3, y, mean, inverse, *[NOTHING] * 3])
    assert torch.equal(y.isnan(), x.isnan().any(0).expand(10, 4))
