"""Sums over rows on a GPU, whose blocks end in any order: the right ones, the same bits each time,
and counters that are zero afterwards."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from golow.levels.direct.cudnn.operators import group_norm, layer_norm, rms_norm
from golow.levels.direct.cudnn.shared_kernels.columns import Sums
from golow.levels.direct.cudnn.shared_kernels.reduction import reduction
from golow.lower.operators.group_norm import GroupMoments, GroupNormGradients
from support.direct.kernel_launches import assert_close, drawn, gpu, run

__all__ = ["gpu"]  # a fixture

if not torch.cuda.is_available():
    pytest.skip("there is no GPU", allow_module_level=True)

pytestmark = pytest.mark.gpu

LAUNCHES = 50
# Alone in a block, at once in narrow tiles, and in parts; with and without vectors of 16 bytes.
SHAPES = [(1, 8), (64, 768), (1024, 768), (1024, 770), (12608, 768), (40000, 33), (200000, 1)]


def launched(gpu: Any, sums: Sums, inputs: Sequence[Tensor], *shape: int) -> Tensor:
    """What each of many launches finds, float32 tensors of that shape."""
    from golow.levels.nvidia.memory import Region

    items = int(np.prod(shape[1:]))
    given = [Region(tensor.nbytes) for tensor in inputs]
    for region, tensor in zip(given, inputs, strict=True):
        gpu.upload(region.address, tensor.reshape(-1).view(torch.uint8).numpy())
    results = [Region(4 * items) for _ in range(shape[0])]
    further = [Region(4 * sums.partial), Region(4 * sums.arrivals)]
    memory = [region.address if sums.partial else 0 for region in further]
    found = []
    for _ in range(LAUNCHES):
        for region in (*results, further[0]):
            gpu.fill(region.address, region.size, 255)
        gpu.launch(sums.kernel, [r.address for r in (*given, *results)] + memory)
        found.append([gpu.download(r.address, (items,), np.float32) for r in results])
    assert not gpu.download(further[1].address, (max(sums.arrivals, 1),), np.uint32).any()
    for again in found[1:]:
        np.testing.assert_array_equal(found[0], again)
    return torch.from_numpy(np.stack(found[0])).reshape(shape)


def assert_sum(found: Tensor, terms: Tensor) -> None:
    limit = 1e-5 * len(terms) ** 0.5
    torch.testing.assert_close(found.double(), terms.sum(0), rtol=1e-5, atol=limit)


@pytest.mark.parametrize(("rows", "columns"), SHAPES)
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_gradient_of_a_bias(gpu: Any, dtype: str, rows: int, columns: int) -> None:
    x = drawn(rows, columns, dtype=dtype)
    (found,) = launched(gpu, reduction(dtype, "float32", 1, rows, columns), [x], 1, columns)
    assert_sum(found, x.double())


@pytest.mark.parametrize(("rows", "columns"), SHAPES)
def test_gradients_of_the_vectors_of_norms(gpu: Any, rows: int, columns: int) -> None:
    gradient, x = (drawn(rows, columns, dtype="bfloat16", seed=seed) for seed in (0, 1))
    mean, deviation = drawn(rows), drawn(rows, seed=1).abs() + 0.5
    sums = layer_norm.weights_kernel("bfloat16", "bfloat16", rows, columns)
    of_weight, of_bias = launched(gpu, sums, [gradient, x, mean, deviation], 2, columns)
    centred = x.double() - mean.double()[:, None]
    assert_sum(of_weight, gradient.double() * centred * deviation.double()[:, None])
    assert_sum(of_bias, gradient.double())
    sums = rms_norm.weights_kernel("bfloat16", "bfloat16", rows, columns)
    (found,) = launched(gpu, sums, [gradient, x, deviation], 1, columns)
    assert_sum(found, gradient.double() * x.double() * deviation.double()[:, None])


@pytest.mark.parametrize(
    ("rows", "columns", "blocks"),
    [(2112, 768, 132), (12608, 768, 396), (9000, 24, 132), (5, 1024, 3)],
)
def test_vectors_of_a_layer_norm_beside_its_x(
    gpu: Any, rows: int, columns: int, blocks: int
) -> None:
    types, weight = ("bfloat16",) * 4, drawn(columns)
    gradient, x = (drawn(rows, columns, dtype="bfloat16", seed=seed) for seed in (0, 1))
    mean, deviation = drawn(rows), drawn(rows, seed=1).abs() + 0.5
    added = drawn(rows, columns, dtype="bfloat16", seed=2)
    given = [gradient, x, mean, deviation, weight, added]
    alone, beside = torch.empty_like(x), torch.empty_like(x)
    parts = torch.empty(2, blocks, columns)
    run(gpu, layer_norm.backward_kernel(types, rows, columns), given, [alone])
    run(gpu, layer_norm.backward_kernel(types, rows, columns, blocks), given, [beside, parts])
    assert_close(beside, alone)
    sums = layer_norm.parts_kernel(blocks, columns)
    of_weight, of_bias = launched(gpu, sums, [parts], 2, columns)
    centred = x.double() - mean.double()[:, None]
    assert_sum(of_weight, gradient.double() * centred * deviation.double()[:, None])
    assert_sum(of_bias, gradient.double())


@pytest.mark.parametrize(("rows", "channels", "groups"), [(1, 8, 8), (4096, 320, 32), (35, 24, 1)])
def test_moments_and_gradients_of_groups(gpu: Any, rows: int, channels: int, groups: int) -> None:
    sizes = (3, rows, channels)
    x, gradient = (drawn(*sizes, dtype="bfloat16", seed=seed) for seed in (0, 1))
    kernel = group_norm.moments_of_channels("bfloat16", sizes)
    sums = launched(gpu, kernel, [x], 1, 2 * 3 * channels)[0]
    mean, deviation = torch.empty(3, channels), torch.empty(3, channels)
    kernel = group_norm.moments_of_groups("bfloat16", sizes, groups, 1e-2)
    run(gpu, kernel, [x, sums], [mean, deviation])
    image, outer = (t.double().transpose(1, 2)[..., None] for t in (x, gradient))
    wanted = [t.flatten(1) for t in GroupMoments.meaning(image, groups, 1e-2)]
    torch.testing.assert_close(mean.double(), wanted[0], rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(deviation.double(), wanted[1], rtol=1e-5, atol=1e-5)
    kernel = group_norm.gradients_of_channels("bfloat16", "bfloat16", sizes)
    sums = launched(gpu, kernel, [gradient, x, mean, deviation], 1, 2 * 3 * channels)[0]
    found = [torch.empty(3, channels) for _ in range(3)]
    vectors = [torch.empty(channels) for _ in range(2)]
    weight = drawn(channels)
    run(gpu, group_norm.gradients_of_groups(sizes, groups), [sums, deviation, weight], found)
    run(gpu, group_norm.gradients_of_vectors(sizes), [sums], vectors)
    wide = (t.double()[..., None, None] for t in (mean, deviation))
    expected = GroupNormGradients.meaning(outer, image, *wide, weight.double(), groups)
    of_images = (sums[3 * channels :], sums[: 3 * channels])
    for made, wanted_one in zip((*found, *vectors, *of_images), expected, strict=True):
        exact = wanted_one.reshape(made.shape)
        limit = 1e-5 * max(float(exact.abs().max()), 1.0)
        torch.testing.assert_close(made.double(), exact, rtol=1e-4, atol=limit)
