"""Losses, dropout and the update of the parameters on a GPU, against PyTorch in float64."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn import functional

from golow.levels.direct.cudnn.operators import nll_loss, softmax
from golow.levels.direct.cudnn.shared_kernels import dropout, loss_scale, updates
from golow.lower.fuse.optimizer_updates import append_update
from golow.lower.ir.graph import Graph, GraphInput, GraphOutput, Node, Ref, Value
from golow.lower.ir.operator import record_of
from golow.records.workload import Optimizer
from support.direct.kernel_launches import TYPES, assert_close, drawn, gpu, result, run, torch_type
from support.models import optimizers

__all__ = ["gpu"]  # a fixture

if not torch.cuda.is_available():
    pytest.skip("there is no GPU", allow_module_level=True)

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
    backward = softmax.backward_kernel(("float32", "float32", dtype), *rows_columns, logarithm)
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
    state = np.array([(scale, good_steps, found)], loss_scale.SCALER)
    return torch.from_numpy(state.view(np.uint8))


NOTHING = torch.empty(0)


@pytest.mark.parametrize("count", [1, 7, 64, 10_001])
@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("copied", [False, True])
@pytest.mark.parametrize("scaled", [False, True])
@pytest.mark.parametrize("settings", optimizers.ALL, ids=str)
def test_an_update_is_that_of_pytorch(
    gpu: Any, settings: Optimizer, count: int, dtype: str, copied: bool, scaled: bool
) -> None:
    parameter, rate = drawn(count), torch.tensor([settings.learning_rate])
    held = {kind: torch.zeros(count) for kind in ("momentum", "square")}
    copy = torch.zeros(count if copied else 0, dtype=torch_type(dtype))
    state = scaler(1024.0, 0, 0) if scaled else NOTHING
    exact = torch.nn.Parameter(parameter.double())
    optimizer = optimizers.in_torch(settings, [exact])
    operator = operator_of(settings)
    kernel = updates.update(count, operator, gradient=dtype, copy=dtype)
    steps, corrections, adam = torch.zeros(()), torch.zeros(4), settings.counts_steps
    given = [held[kind] if kind in kinds_of(operator) else NOTHING for kind in held]
    for step in range(3):
        gradient = drawn(count, dtype=dtype, seed=step)
        exact.grad = gradient.double()
        optimizers.clip(settings, [exact])
        optimizer.step()
        passed = gradient * 1024 if scaled else gradient
        factor = NOTHING
        if settings.clip is not None:
            factor, sums = torch.zeros(()), torch.zeros(updates.BLOCKS)
            run(gpu, updates.squares(count, dtype), [passed, sums], [])
            run(gpu, updates.clip_factor(updates.BLOCKS, settings.clip), [sums, state, factor], [])
        if adam:
            run(gpu, updates.adam_step(settings.betas), [state, steps, corrections], [])
        numbers = corrections if adam else NOTHING
        run(gpu, kernel, [passed, parameter, *given, rate, numbers, factor, state, copy], [])
        assert_close(parameter, exact.detach(), slack=64)
        for key, kind in optimizers.NAMES.items():
            if optimizer.state[exact].get(key) is not None:
                assert_close(held[kind], optimizer.state[exact][key], slack=64)
        if copied:
            assert torch.equal(copy, parameter.to(copy.dtype))


def operator_of(settings: Optimizer) -> updates.Update:
    """The update of a parameter, as the pass writes it."""
    weight, given, gradient = (Value(name=n, shape=(2,), dtype="float32") for n in "wgh")
    negative = Node(
        name="h", op="aten.neg.default", arguments=(Ref(name="g"),), outputs=(gradient,)
    )
    graph = Graph(
        name="update",
        mode="train",
        inputs=(
            GraphInput(value=weight, kind="parameter", target="w"),
            GraphInput(value=given, kind="input", target="0"),
        ),
        nodes=(negative,),
        outputs=(GraphOutput(name="h", kind="gradient", target="w"),),
    )
    found = (record_of(node) for node in append_update(graph, settings).nodes)
    return next(one for one in found if isinstance(one, updates.Update))


def kinds_of(operator: updates.Update) -> set[str]:
    """What the update keeps."""
    return {kind for kind in ("momentum", "square") if getattr(operator, kind, None) is not None}


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("place", [0, 4099, 4100])
@pytest.mark.parametrize("value", [torch.inf, -torch.inf, torch.nan])
def test_bad_gradient_leaves_a_step_out(gpu: Any, dtype: str, place: int, value: float) -> None:
    count, state = 4101, scaler(512.0, 1999, 0)
    gradient, parameter, momentum = drawn(count, dtype=dtype), drawn(count), drawn(count)
    gradient[5] = torch.finfo(gradient.dtype).max
    find = loss_scale.find_nonfinite(count, dtype)
    run(gpu, find, [gradient, state], [])
    assert torch.equal(state, scaler(512.0, 1999, 0))
    gradient[place] = value
    run(gpu, find, [gradient, state], [])
    assert torch.equal(state, scaler(512.0, 1999, 1))
    before = parameter.clone(), momentum.clone()
    kernel = updates.update(count, operator_of(optimizers.ALL[2]), gradient=dtype)
    none = [NOTHING] * 2
    given = [gradient, parameter, momentum, NOTHING, torch.ones(1), *none, state, NOTHING]
    run(gpu, kernel, given, [])
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
    run(gpu, loss_scale.next_scale(), [state], [])
    assert torch.equal(state, scaler(*after))
