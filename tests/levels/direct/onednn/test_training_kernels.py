"""The kernels of `onednn` for small steps of a training, against PyTorch and float64."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
import torch
from torch.nn import functional

from golow.levels.compiler import find_compiler
from golow.levels.direct.kernel_views import View
from golow.levels.direct.onednn.kernels import group_statistics, step_numbers
from golow.levels.direct.onednn.kernels.copies import BLOCK, STRIP, rows_summed
from golow.levels.direct.onednn.kernels.elements import Statement, Written, elements, of_each
from golow.levels.direct.onednn.kernels.likelihood import likelihood, likelihood_gradient
from golow.levels.direct.onednn.level import probe
from support.direct.onednn_kernels import run

pytestmark = [
    pytest.mark.skipif(not probe().available, reason="oneDNN is not installed"),
    pytest.mark.skipif(find_compiler() is None, reason="there is no C++ compiler"),
]


def drawn(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def number(value: float = 0.0) -> np.ndarray:
    return np.array([value], np.float32)


# ---------------------------------------------------------------- the loss


@pytest.mark.parametrize("mean", [True, False])
@pytest.mark.parametrize(("rows", "columns"), [(1, 1), (7, 5), (3000, 11)])
def test_the_likelihood_of_targets(rows: int, columns: int, mean: bool) -> None:
    """Also where some are ignored, by one thread and by several."""
    logs = torch.from_numpy(drawn(rows, columns)).requires_grad_()
    target = torch.arange(rows) % columns
    target[1::3] = -100
    wanted = functional.nll_loss(logs, target, reduction="mean" if mean else "sum")
    wanted.backward()
    loss, weight = number(), number()
    run(likelihood(rows, columns, mean, -100), logs.detach().numpy(), target.numpy(), loss, weight)
    assert loss[0] == pytest.approx(wanted.item(), rel=1e-6)
    assert weight[0] == (target >= 0).sum()
    found = np.full((rows, columns), np.nan, np.float32)
    kernel = likelihood_gradient(rows, columns, mean, -100)
    run(kernel, number(1.0), target.numpy(), weight, found)
    assert logs.grad is not None
    assert np.allclose(found, logs.grad.numpy(), rtol=1e-6)


@pytest.mark.parametrize("wrong", [-1, 5, 1 << 40])
def test_a_target_that_is_no_class_makes_the_loss_nan(wrong: int) -> None:
    logs, target = drawn(3, 5), np.array([1, wrong, 2])
    loss, weight = number(), number()
    run(likelihood(3, 5, True, -100), logs, target, loss, weight)
    assert np.isnan(loss[0])
    found = np.ones((3, 5), np.float32)
    run(likelihood_gradient(3, 5, True, -100), number(1.0), target, weight, found)
    assert not found[1].any()
    assert np.count_nonzero(found) == 2


# ---------------------------------------------------------------- the optimizer


@pytest.mark.parametrize(
    "sizes", [[1], [3, 5], [step_numbers.PIECE, 1, step_numbers.PIECE + 1, 3 * step_numbers.PIECE]]
)
@pytest.mark.parametrize("norm", [0.5, 1e6])
def test_the_factor_of_clipping(sizes: list[int], norm: float) -> None:
    rows = [drawn(size, seed=k) for k, size in enumerate(sizes)]
    sums, factor = np.zeros(step_numbers.pieces(sizes), np.float32), number()
    run(step_numbers.squares(sizes), *rows, sums)
    run(step_numbers.clip_factor(len(sums), norm, 1e-6), sums, factor)
    parameters = [torch.nn.Parameter(torch.zeros(size)) for size in sizes]
    for parameter, row in zip(parameters, rows, strict=True):
        parameter.grad = torch.from_numpy(row.copy())
    torch.nn.utils.clip_grad_norm_(parameters, norm)
    for parameter, row in zip(parameters, rows, strict=True):
        assert parameter.grad is not None
        assert np.allclose(row * factor, parameter.grad.numpy(), rtol=2e-6)


@pytest.mark.parametrize("steps", [0, 9, 100_000])
@pytest.mark.parametrize("betas", [(0.9, 0.999), (0.0, 0.0)])
def test_the_numbers_of_an_adam_step(steps: int, betas: tuple[float, float]) -> None:
    made = number(), number(), number()
    run(step_numbers.adam_numbers(betas), number(steps), number(-0.01), *made)
    first, second = (1 - beta ** (steps + 1) for beta in betas)
    wanted = [steps + 1, -np.float32(0.01) / first, second**-0.5]
    assert np.concatenate(made) == pytest.approx(wanted, rel=1e-6)


def test_a_counter_is_whole_beyond_float32() -> None:
    x, y = np.array([0, 1 << 40]), np.zeros(2, np.int64)
    run(of_each("x0 + 1", "int64", 2), x, y)
    assert y.tolist() == [1, (1 << 40) + 1]


def test_truth_values_are_read_as_bytes() -> None:
    """A compiler may make no vectors of a loop that reads them as what they are."""
    x, kept = drawn(5, 37), drawn(5, 37, seed=1) > 0
    chosen = Statement("y", "float32", "x0 ? x1 : -1.0f")
    inputs = [View("bool", (37, 1)), View("float32", (37, 1))]
    kernel = elements([chosen], inputs, [Written("y", View("float32", (40, 1)))], x.shape)
    assert "bool*" not in kernel.code
    made = np.zeros((5, 40), np.float32)
    run(kernel, kept, x, made)
    np.testing.assert_array_equal(made[:, :37], np.where(kept, x, -1))


# ---------------------------------------------------------------- gradients of rows


@pytest.mark.parametrize("index", [np.int64, np.int32])
@pytest.mark.parametrize(
    ("outer", "rows", "count", "width"),
    [(1, 9, 3, 1), (2, 9, 1, 7), (3, 9, 70, STRIP + 3), (2, BLOCK // STRIP * 2 + 1, 40, STRIP + 1)],
)
@pytest.mark.parametrize("skipped", [-1, 4])
def test_rows_are_added_where_they_were_taken(
    index: type[np.integer], outer: int, rows: int, count: int, width: int, skipped: int
) -> None:
    """Of a small result in strips of columns, and of a large one in blocks of rows."""
    x = drawn(outer, count, width)
    indices = np.random.default_rng(0).integers(0, rows, count).astype(index)
    indices[0] = indices[-1] = rows - 1
    shape = outer, rows, width
    found, wanted = np.full(shape, np.nan, np.float32), np.zeros(shape)
    run(rows_summed("float32", indices.dtype.name, outer, rows, count, width, skipped), x, indices,
        found)  # fmt: skip
    np.add.at(wanted, (slice(None), indices), x)
    wanted[:, skipped] *= skipped < 0
    assert np.allclose(found, wanted, rtol=1e-5, atol=1e-6)


# ---------------------------------------------------------------- batch norm


@pytest.mark.parametrize(("channels", "groups", "block"), [(4, 3, 4), (8, 5, 4), (6, 2, 6)])
@pytest.mark.parametrize("given", [0, 1, 2])
def test_statistics_of_groups_are_those_of_all_pixels(
    channels: int, groups: int, block: int, given: int
) -> None:
    pixels = drawn(groups, 10, channels) * 3 + 1
    order = _order(channels, groups, block)
    means, variances = (
        _in_memory(values, order) for values in (pixels.mean(1), pixels.var(1, dtype=np.float64))
    )
    affine = [drawn(channels, seed=k) for k in range(given)]
    spread = [np.zeros(channels * groups, np.float32) for _ in range(2 + given)]
    mean, variance = np.zeros(channels, np.float32), np.zeros(channels, np.float32)
    kernel = group_statistics.combined(channels, groups, block, given)
    run(kernel, means, variances, *affine, *spread, mean, variance)
    flat = pixels.reshape(-1, channels).astype(np.float64)
    assert np.allclose(mean, flat.mean(0), rtol=1e-5, atol=1e-6)
    assert np.allclose(variance, flat.var(0), rtol=1e-5)
    for values, into in zip([mean, variance, *affine], spread, strict=True):
        assert (into == _in_memory(np.tile(values, (groups, 1)), order)).all()


@pytest.mark.parametrize(("channels", "groups", "block"), [(4, 3, 4), (8, 5, 4)])
@pytest.mark.parametrize("scaled", [True, False])
def test_corrections_make_gradients_of_groups_those_of_the_batch(
    channels: int, groups: int, block: int, scaled: bool
) -> None:
    x, gradient = drawn(groups, 10, channels), drawn(groups, 10, channels, seed=1)
    scale, order = drawn(channels, seed=2), _order(channels, groups, block)
    flat = x.reshape(-1, channels)
    mean, variance = flat.mean(0), flat.var(0)
    inverse = 1 / np.sqrt(variance.astype(np.float64) + 1e-5)
    factor = inverse * scale if scaled else inverse
    normed = (x - mean) * inverse
    ones, sums = gradient.sum(1), (gradient * normed).sum(1)
    level, slope = (np.zeros(channels * groups, np.float32) for _ in range(2))
    total_normed, total_ones = (np.zeros(channels, np.float32) for _ in range(2))
    kernel = group_statistics.corrections(channels, groups, block, groups * 10, scaled, 1e-5)
    given = [_in_memory(sums, order), _in_memory(ones, order), mean, variance]
    run(kernel, *given, *([scale] if scaled else []), level, slope, total_normed, total_ones)
    assert np.allclose(total_ones, ones.sum(0), rtol=1e-4, atol=1e-4)
    assert np.allclose(total_normed, sums.sum(0), rtol=1e-4, atol=1e-4)
    by_group = factor * (gradient - ones[:, None] / 10 - normed * sums[:, None] / 10)
    wanted = factor * (
        gradient - ones.sum(0) / (groups * 10) - normed * sums.sum(0) / (groups * 10)
    )
    for g, c in product(range(groups), range(channels)):
        found = by_group[g, :, c] + level[order[g, c]] + slope[order[g, c]] * x[g, :, c]
        assert np.allclose(found, wanted[g, :, c], rtol=1e-3, atol=1e-4)


def _order(channels: int, groups: int, block: int) -> np.ndarray:
    """Where the channel of a group is stored: [groups, channels]."""
    g, c = np.indices((groups, channels))
    return np.asarray((c // block * groups + g) * block + c % block)


def _in_memory(values: np.ndarray, order: np.ndarray) -> np.ndarray:
    found = np.empty(values.size, np.float32)
    found[order.ravel()] = values.astype(np.float32).ravel()
    return found
