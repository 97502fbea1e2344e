"""Losses, dropout and the update of the parameters on a GPU, against PyTorch in float64."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn import functional

from golow.levels.vendor.cudnn.operators import dropout, nll_loss, sgd_update, softmax
from kernel_launches import TYPES, assert_close, drawn, gpu, result, run, torch_type

__all__ = ["gpu"]  # a fixture

pytestmark = pytest.mark.gpu


# ---------------------------------------------------------------- losses

CLASSES = [(1, 1), (5, 10), (64, 10), (7, 129), (33, 1000), (3, 5000)]


@pytest.mark.parametrize("rows_columns", CLASSES)
@pytest.mark.parametrize("logarithm", [False, True])
@pytest.mark.parametrize("dtype", TYPES)
def test_softmax(gpu: Any, dtype: str, logarithm: bool, rows_columns: tuple[int, int]) -> None:
    x = (drawn(*rows_columns) * 30).to(torch_type(dtype))
    function: Callable[..., Tensor] = functional.log_softmax if logarithm else functional.softmax
    exact = x.double().requires_grad_()
    y = function(exact, 1)
    found = result(gpu, softmax.forward_kernel(dtype, *rows_columns, logarithm), [x], x, "float32")
    assert_close(found, y, slack=16)
    gradient = drawn(*rows_columns, seed=1)
    (dx,) = torch.autograd.grad(y, exact, gradient.double())
    backward = softmax.backward_kernel(dtype, *rows_columns, logarithm)
    assert_close(result(gpu, backward, [gradient, found], x, dtype), dx, slack=64)


def test_softmax_of_nan_and_infinities(gpu: Any) -> None:
    x = drawn(4, 40)
    x[0, 7], x[1, 3], x[2] = torch.nan, torch.inf, -torch.inf
    x[3, 1] = -torch.inf
    for logarithm, function in ((False, torch.softmax), (True, torch.log_softmax)):
        kernel = softmax.forward_kernel("float32", 4, 40, logarithm)
        assert_close(result(gpu, kernel, [x], x, "float32"), function(x.double(), 1), slack=16)


def _targets(rows: int, columns: int, ignored: int) -> Tensor:
    targets = torch.randint(0, columns, (rows,), generator=torch.Generator().manual_seed(rows))
    targets[::5] = ignored
    return targets


@pytest.mark.parametrize("mean", [True, False])
@pytest.mark.parametrize("rows_columns", [*CLASSES[1:], (1500, 10)])
def test_nll_loss(gpu: Any, mean: bool, rows_columns: tuple[int, int]) -> None:
    y, target = drawn(*rows_columns).log_softmax(1), _targets(*rows_columns, ignored=-7)
    loss, weight = torch.empty(1), torch.empty(1)
    run(gpu, nll_loss.forward_kernel(*rows_columns, mean, -7), [y, target], [loss, weight])
    exact = y.double().requires_grad_()
    reduction = "mean" if mean else "sum"
    expected = functional.nll_loss(exact, target, ignore_index=-7, reduction=reduction)
    assert_close(loss, expected.reshape(1))
    assert weight.item() == (target != -7).sum()
    gradient = torch.tensor([3.0])
    (dy,) = torch.autograd.grad(expected * 3, exact)
    backward = nll_loss.backward_kernel(*rows_columns, mean, -7)
    assert_close(result(gpu, backward, [gradient, target, weight], y, "float32"), dy)


def test_losses_of_strange_targets(gpu: Any) -> None:
    x = drawn(3, 10)
    for target in (torch.tensor([1, 10, 2]), torch.tensor([-1, 3, 2]), torch.full((3,), -100)):
        loss, weight = torch.empty(1), torch.empty(1)
        run(gpu, nll_loss.forward_kernel(3, 10, mean=True), [x, target], [loss, weight])
        assert loss.isnan()


# ---------------------------------------------------------------- dropout


def philox(quad: np.ndarray, step: int, layer: int, seed: int) -> np.ndarray:
    """[quads, 4] words of Philox4x32-10."""
    low, keys = np.uint64(0xFFFFFFFF), [seed, 0]
    a, b = quad & low, quad >> np.uint64(32)
    c, d = np.full_like(quad, step), np.full_like(quad, layer)
    for _ in range(10):
        first, second = a * np.uint64(0xD2511F53), c * np.uint64(0xCD9E8D57)
        a, b, c, d = (
            (second >> np.uint64(32)) ^ b ^ np.uint64(keys[0]),
            second & low,
            (first >> np.uint64(32)) ^ d ^ np.uint64(keys[1]),
            first & low,
        )
        keys = [(keys[0] + 0x9E3779B9) % 2**32, (keys[1] + 0xBB67AE85) % 2**32]
    return np.stack([a, b, c, d], 1)


def control(seed: int, step: int, probability: float) -> Tensor:
    state = np.array([(seed, step, probability)], dropout.CONTROL)
    return torch.from_numpy(state.view(np.uint8))


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("count", [3, 4096, 10_001])
@pytest.mark.parametrize("probability", [0.0, 0.3, 1.0])
def test_dropout(gpu: Any, dtype: str, count: int, probability: float) -> None:
    # The known answer of the authors' library for a counter and a key of zeros.
    known = [0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8]
    assert philox(np.zeros(1, np.uint64), 0, 0, 0)[0].tolist() == known
    x, mask = drawn(count, dtype=dtype), torch.empty(count, dtype=torch.bool)
    y, state = torch.empty_like(x), control(123, 7, probability)
    run(gpu, dropout.forward_kernel(dtype, count, layer=5), [x, state], [y, mask])
    words = philox(np.arange(-(-count // 4), dtype=np.uint64), 7, 5, 123).reshape(-1)[:count]
    kept = torch.from_numpy((words >> np.uint64(8)) * 2.0**-24 >= np.float32(probability))
    assert torch.equal(mask, kept)
    assert_close(y, x.double() * kept / (1 - probability) if probability < 1 else x * 0.0)
    if probability == 0:
        assert torch.equal(y, x)
        assert mask.all()


def test_step_of_dropout_advances(gpu: Any) -> None:
    state = control(9, 4, 0.5)
    run(gpu, dropout.advance_kernel(), [state], [])
    assert torch.equal(state, control(9, 5, 0.5))


# ---------------------------------------------------------------- update


def scaler(scale: float, good_steps: int, found: int) -> Tensor:
    state = np.array([(scale, good_steps, found)], sgd_update.SCALER)
    return torch.from_numpy(state.view(np.uint8))


@pytest.mark.parametrize("count", [1, 7, 64, 10_001])
@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("copied", [False, True])
@pytest.mark.parametrize("scaled", [False, True])
def test_sgd_is_that_of_pytorch(
    gpu: Any, count: int, dtype: str, copied: bool, scaled: bool
) -> None:
    parameter, momentum, rate = drawn(count), torch.zeros(count), torch.tensor([0.1])
    copy = torch.zeros(count if copied else 0, dtype=torch_type(dtype))
    state = scaler(1024.0, 0, 0) if scaled else torch.empty(0)
    exact = torch.nn.Parameter(parameter.double())
    optimizer = torch.optim.SGD([exact], lr=0.1, momentum=0.9, weight_decay=5e-4)
    kernel = sgd_update.sgd_kernel(count, 0.9, 5e-4, gradient=dtype, copy=dtype)
    for step in range(3):
        gradient = drawn(count, dtype=dtype, seed=step)
        exact.grad = gradient.double()
        optimizer.step()
        passed = gradient * 1024 if scaled else gradient
        run(gpu, kernel, [passed, parameter, momentum, rate, state, copy], [])
        assert_close(parameter, exact.detach())
        assert_close(momentum, optimizer.state[exact]["momentum_buffer"])
        if copied:
            assert torch.equal(copy, parameter.to(copy.dtype))


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("place", [0, 4099, 4100])
@pytest.mark.parametrize("value", [torch.inf, -torch.inf, torch.nan])
def test_bad_gradient_leaves_a_step_out(gpu: Any, dtype: str, place: int, value: float) -> None:
    count, state = 4101, scaler(512.0, 1999, 0)
    gradient, parameter, momentum = drawn(count, dtype=dtype), drawn(count), drawn(count)
    gradient[5] = torch.finfo(gradient.dtype).max
    find = sgd_update.find_nonfinite_kernel(count, dtype)
    run(gpu, find, [gradient, state], [])
    assert torch.equal(state, scaler(512.0, 1999, 0))
    gradient[place] = value
    run(gpu, find, [gradient, state], [])
    assert torch.equal(state, scaler(512.0, 1999, 1))
    before = parameter.clone(), momentum.clone()
    kernel = sgd_update.sgd_kernel(count, 0.9, 0.0, gradient=dtype)
    run(gpu, kernel, [gradient, parameter, momentum, torch.ones(1), state, torch.empty(0)], [])
    assert torch.equal(parameter, before[0])
    assert torch.equal(momentum, before[1])


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ((8.0, 5, 1), (4.0, 0, 0)),
        ((8.0, 5, 0), (8.0, 6, 0)),
        ((8.0, 1999, 0), (16.0, 0, 0)),
    ],
)
def test_next_scale(
    gpu: Any, before: tuple[float, int, int], after: tuple[float, int, int]
) -> None:
    state = scaler(*before)
    run(gpu, sgd_update.next_scale_kernel(), [state], [])
    assert torch.equal(state, scaler(*after))
