"""golow's own batch norm for a GPU: strategies and compilation anywhere, values on a GPU against
float64."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from math import inf, isnan
from typing import Any

import pytest
import torch
from torch import Tensor

from golow.levels.cudnn.kernels import ITEM_BYTES, Kernel
from golow.levels.cudnn.kernels.batch_norm import (
    batch_norm,
    batch_norm_backward,
    batch_norm_inference,
)
from golow.levels.cudnn.kernels.blocks import NO_CLIP, RELU, Clip, Launches
from kernel_compilation import assert_compile
from kernel_launches import ROUNDING, TYPES, drawn, gpu, run, torch_type

__all__ = ["gpu"]  # a fixture

CLIPS: list[Clip] = [NO_CLIP, RELU, (0.0, 6.0)]
MOMENTUM, EPSILON = 0.1, 1e-5
# Rows and channels: vectors, odd channels, fewer rows than threads, clusters of 1 to 8, parts.
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
        yield batch_norm_inference(dtype, rows, channels)


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
        (12544, 2048, 1),
        (401408, 64, 3),
        (802816, 256, 3),
    ],
)
def test_what_stays_in_the_cache_is_one_launch(rows: int, channels: int, launches: int) -> None:
    for found in training("bfloat16", rows, channels):
        assert len(found.kernels) == launches
        assert bool(found.scratch) == (launches > 1)


@pytest.mark.parametrize(("rows", "channels"), SHAPES)
@pytest.mark.parametrize("dtype", TYPES)
def test_the_grid_covers_rows_and_channels(dtype: str, rows: int, channels: int) -> None:
    for launches in training(dtype, rows, channels):
        first, *others = launches.kernels
        numbers = [int(number) for number in first.expression[:-1].split(", ")[1:]]
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
    for launches in training("float32", 2048, 256, clusters=False):
        assert launches.kernels[0].expression.endswith(", 1>")


def test_gradients_pass_an_infinite_result() -> None:
    (kernel,) = batch_norm_backward("float16", 10, 8, clip=RELU).kernels
    low, high = kernel.scalars[-2:]
    assert low == 0 and isnan(high)


def test_bad_arguments_are_named() -> None:
    with pytest.raises(ValueError, match="0 rows, 8 channels"):
        batch_norm("float32", 0, 8, momentum=MOMENTUM, epsilon=EPSILON)
    with pytest.raises(ValueError, match="float64"):
        batch_norm_backward("float64", 8, 8)
    with pytest.raises(ValueError, match="5 rows, 0 channels"):
        batch_norm_inference("float32", 5, 0)


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
@pytest.mark.parametrize("clip", CLIPS)
@pytest.mark.parametrize("dtype", TYPES)
def test_training(gpu: Any, dtype: str, clip: Clip, rows: int, channels: int) -> None:
    x = (drawn(rows, channels) + 3 * drawn(channels)).to(torch_type(dtype))
    residual = drawn(rows, channels, dtype=dtype, seed=1)
    scale, shift = drawn(channels, seed=2).abs() + 0.5, drawn(channels, seed=3)
    y, mean, inverse = unset(x), unset(scale), unset(scale)
    running_mean, running_variance = drawn(channels, seed=4), drawn(channels, seed=5).abs()
    before = running_mean.double(), running_variance.double()
    forward = batch_norm(dtype, rows, channels, momentum=MOMENTUM, epsilon=EPSILON, clip=clip)
    statistics = [mean, inverse, running_mean, running_variance]
    launch(gpu, forward, [x, residual, scale, shift, y, *statistics])

    n, true_mean, true_inverse = normalized(x)
    assert_near(mean, true_mean, 1e-6)
    assert_near(inverse, true_inverse, limit_of("float32", rows))
    assert_near(running_mean, 0.9 * before[0] + 0.1 * true_mean, 1e-6)
    variance = x.double().var(0, unbiased=rows > 1)
    assert_near(running_variance, 0.9 * before[1] + 0.1 * variance, 1e-5)
    expected = n * scale.double() + shift.double() + residual.double()
    assert_near(y, expected.clamp(*clip), limit_of(dtype, rows))

    gradient = drawn(rows, channels, dtype=dtype, seed=6)
    dx, dresidual, dscale, dshift = unset(x), unset(x), unset(scale), unset(scale)
    backward = batch_norm_backward(dtype, rows, channels, clip=clip)
    tensors = [gradient, y if clip != NO_CLIP else NOTHING, x, scale, mean, inverse]
    launch(gpu, backward, [*tensors, dx, dscale, dshift, dresidual])

    g = gradient.double() * ((y.double() > clip[0]) & (y.double() < clip[1]))
    n = (x.double() - mean.double()) * inverse.double()
    sums = float(g.abs().sum(0).max()) + 1e-6
    assert float((dshift - g.sum(0)).abs().max()) <= 1e-5 * sums
    assert float((dscale - (g * n).sum(0)).abs().max()) <= 1e-5 * sums
    assert torch.equal(dresidual.double(), g)
    factor = scale.double() * inverse.double()
    exact = factor * (g - (g.sum(0) + n * (g * n).sum(0)) / rows)
    reach = float((factor * g).abs().max()) + 1e-6  # dx of few rows is a small difference
    assert float((dx.double() - exact).abs().max()) <= limit_of(dtype, rows) * reach


@pytest.mark.gpu
@pytest.mark.parametrize(("rows", "channels"), [(100, 16), (20011, 8)])
@pytest.mark.parametrize("clusters", [False, True])
def test_absent_operands(gpu: Any, clusters: bool, rows: int, channels: int) -> None:
    x, y = drawn(rows, channels), torch.full((rows, channels), torch.nan)
    mean, inverse = torch.empty(channels), torch.empty(channels)
    forward, backward = training("float32", rows, channels, clusters)
    launch(gpu, forward, [x, NOTHING, NOTHING, NOTHING, y, mean, inverse, NOTHING, NOTHING])
    n, _, true_inverse = normalized(x)
    assert_near(y, n, 1e-5)
    gradient, dx, dscale, dshift = drawn(rows, channels, seed=1), unset(x), unset(mean), unset(mean)
    tensors = [gradient, NOTHING, x, NOTHING, mean, inverse, dx, dscale, dshift, NOTHING]
    launch(gpu, backward, tensors)
    g = gradient.double()
    assert_near(dx, true_inverse * (g - g.mean(0) - n * (g * n).mean(0)), 1e-5)


@pytest.mark.gpu
def test_statistics_of_a_million_pixels_far_from_zero(gpu: Any) -> None:
    x = drawn(1_000_003, 3) + 1000
    y, mean, inverse = unset(x), torch.empty(3), torch.empty(3)
    forward = batch_norm("float32", *x.shape, momentum=MOMENTUM, epsilon=EPSILON)
    launch(gpu, forward, [x, NOTHING, NOTHING, NOTHING, y, mean, inverse, NOTHING, NOTHING])
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
        launch(gpu, forward, [x, NOTHING, NOTHING, NOTHING, y, mean, inverse, NOTHING, NOTHING])
        results.append(y)
    assert torch.equal(results[0], results[1]) and torch.equal(results[0], results[2])


@pytest.mark.gpu
@pytest.mark.parametrize("channels", [64, 7])
@pytest.mark.parametrize("dtype", TYPES)
def test_inference(gpu: Any, dtype: str, channels: int) -> None:
    x, residual = drawn(999, channels, dtype=dtype), drawn(999, channels, dtype=dtype, seed=1)
    factor, offset, y = drawn(channels), drawn(channels, seed=1), unset(x)
    kernel = batch_norm_inference(dtype, 999, channels, clip=(0.0, inf))
    run(gpu, kernel, [x, residual, factor, offset, y], [])
    expected = x.double() * factor.double() + offset.double() + residual.double()
    assert_near(y, expected.clamp(min=0), 4 * ROUNDING[dtype])


@pytest.mark.gpu
def test_nan_passes_the_clip(gpu: Any) -> None:
    x, y = drawn(10, 4), torch.zeros(10, 4)
    x[3, 1] = torch.nan
    kernel = batch_norm_inference("float32", 10, 4, clip=RELU)
    run(gpu, kernel, [x, NOTHING, torch.ones(4), torch.zeros(4), y], [])
    assert torch.equal(y.isnan(), x.isnan())
