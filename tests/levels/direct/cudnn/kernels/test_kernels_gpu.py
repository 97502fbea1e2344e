"""Layouts, inputs, pooling and formulas on a GPU, against PyTorch in float64."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn import functional

from golow.levels.direct.cudnn.operators import adaptive_average_pool, average_pool, max_pool
from golow.levels.direct.cudnn.shared_kernels import Kernel, cast, fetch_inputs
from golow.levels.direct.cudnn.shared_kernels.augment_images import normalise
from golow.levels.direct.cudnn.shared_kernels.pointwise import Operand, pointwise
from golow.levels.direct.cudnn.shared_kernels.pooling import Images, Window
from golow.levels.direct.formulas.activation_formulas import derivative, formulas, value
from golow.lower.ir.graph import Activation
from golow.lower.ir.operator import activation_functions
from golow.worker.feed import Fed, augmented, normalised
from support.direct.kernel_launches import (
    TYPES,
    assert_close,
    channels_first,
    channels_last,
    drawn,
    gpu,
    result,
    run,
    torch_type,
)
from support.graphs.activation_examples import ACTIVATIONS, text

__all__ = ["gpu"]  # a fixture

if not torch.cuda.is_available():
    pytest.skip("there is no GPU", allow_module_level=True)

pytestmark = pytest.mark.gpu


# ---------------------------------------------------------------- layouts and inputs

IMAGES = [
    (2, 3, 5, 7, 4),
    (1, 1, 9, 1, 1),
    (3, 8, 4, 4, 8),
    (2, 6, 17, 2, 7),
    (2, 33, 6, 7, 40),
    (3, 64, 3, 3, 64),
    (2, 10, 1, 1, 16),
    (4, 12, 1, 1, 12),
    (1, 5, 40, 40, 6),
]


def padded_last(x: Tensor, padded: int) -> Tensor:
    return channels_last(functional.pad(x, (0, 0, 0, 0, 0, padded - x.shape[1])))


@pytest.mark.parametrize("shape", IMAGES)
@pytest.mark.parametrize(("source", "dtype"), [("float32", t) for t in TYPES] + [("float16",) * 2])
def test_current_batch_of_images(
    gpu: Any, source: str, dtype: str, shape: tuple[int, int, int, int, int]
) -> None:
    n, c, h, w, padded = shape
    batches = drawn(3, n, c, h, w, dtype=source)
    position = torch.tensor([2], dtype=torch.int32)
    last = torch.empty(n, h, w, padded, dtype=torch_type(dtype))
    run(gpu, fetch_inputs.fetch_image(source, dtype, *shape), [batches, position], [last])
    assert torch.equal(last, padded_last(batches[2], padded).to(last.dtype))


@pytest.mark.parametrize("shape", [(1, 1, 1, 1), (3, 3, 5, 7), (2, 4, 40, 300), (64, 3, 32, 32)])
@pytest.mark.parametrize("moved", [False, True])
@pytest.mark.parametrize("turned", [False, True])
def test_pictures_have_the_bits_of_the_reference(
    gpu: Any, shape: tuple[int, int, int, int], moved: bool, turned: bool
) -> None:
    """Moved within the picture, and out of it altogether."""
    random = np.random.default_rng(sum(shape))
    images, channels = shape[:2]
    scale, shift = random.normal(size=(2, channels)).astype(np.float32)
    reach = min(127, 2 * shape[2])
    fed = Fed(
        random.integers(0, 256, shape, np.uint8),
        np.zeros(images, np.int64),
        random.integers(-reach, reach + 1, (images, 2), np.int8) if moved else None,
        random.integers(0, 2, images, np.uint8) if turned else None,
    )
    given = [fed.pixels, scale, shift, fed.shifts, fed.flips]
    inputs = [torch.empty(0) if array is None else torch.from_numpy(array) for array in given]
    pictures = torch.empty(shape)
    run(gpu, normalise(*shape), inputs, [pictures])
    expected = torch.from_numpy(normalised(augmented(fed), scale, shift))
    assert torch.equal(pictures.view(torch.int32), expected.view(torch.int32))


@pytest.mark.parametrize("count", [1, 5, 8, 1000, 4096])
@pytest.mark.parametrize(
    ("source", "dtype"),
    [("float32", "float16"), ("int64", "int64"), ("uint8", "bfloat16"), ("float32", "float32")],
)
def test_current_batch_of_rows(gpu: Any, source: str, dtype: str, count: int) -> None:
    batches = (drawn(4, count) * 40).abs().to(torch_type(source))
    if source == "int64":
        batches += 2**40
    position = torch.tensor([3], dtype=torch.int32)
    found = result(
        gpu, fetch_inputs.fetch_rows(source, dtype, count), [batches, position], batches[3], dtype
    )
    assert torch.equal(found, batches[3].to(found.dtype))


@pytest.mark.parametrize("source", [*TYPES, "int64", "bool"])
@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("count", [1, 13, 9000])
def test_cast(gpu: Any, source: str, dtype: str, count: int) -> None:
    x = (drawn(count) * 10).to(torch_type(source))
    assert torch.equal(
        result(gpu, cast.cast(source, dtype, count), [x], x, dtype), x.to(torch_type(dtype))
    )


# ---------------------------------------------------------------- pooling

# n, c, h, w, kernel, stride, padding, dilation, ceil_mode
POOLINGS = [
    (2, 8, 9, 7, (3, 3), (2, 2), (1, 1), (1, 1), False),
    (1, 3, 8, 8, (2, 2), (2, 2), (0, 0), (1, 1), False),
    (2, 6, 10, 11, (3, 2), (2, 3), (1, 0), (1, 1), True),
    (1, 5, 7, 7, (2, 2), (2, 2), (0, 0), (1, 1), True),
    (1, 16, 6, 6, (5, 5), (1, 1), (2, 2), (1, 1), False),
    (2, 12, 13, 12, (3, 3), (2, 1), (1, 1), (2, 3), True),
    (1, 64, 28, 28, (3, 3), (2, 2), (1, 1), (1, 1), False),
    (1, 4, 5, 5, (1, 1), (3, 3), (0, 0), (1, 1), True),
    (2, 8, 7, 10, (3, 3), (1, 1), (1, 1), (1, 1), False),
    (1, 24, 11, 8, (3, 2), (2, 1), (1, 0), (1, 1), True),
    (1, 7, 10, 13, (2, 3), (3, 3), (0, 1), (1, 1), False),
    (1, 8, 6, 5, (4, 4), (4, 4), (2, 2), (1, 1), True),
]


def sizes(x: Tensor, y: Tensor) -> Images:
    """Of channels-first tensors."""
    return Images(x.shape[0], *x.shape[2:], x.shape[1], *y.shape[2:])


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("case", POOLINGS)
def test_max_pool(gpu: Any, dtype: str, case: Any) -> None:
    n, c, h, w, kernel, stride, padding, dilation, ceil = case
    x = (drawn(n, c, h, w) * 2).round().to(torch_type(dtype))  # many equal values
    x[0, 0, 2, 3] = torch.nan
    x[0, -1] = -torch.inf
    window = Window(kernel, stride, padding, dilation)
    exact = x.double().requires_grad_()
    y, indices = functional.max_pool2d(
        exact, kernel, stride, padding, dilation, ceil, return_indices=True
    )
    images, gradient = sizes(x, y), drawn(*y.shape, dtype=dtype)
    (dx,) = torch.autograd.grad(y, exact, gradient.double())
    x_last, gradient_last = channels_last(x), channels_last(gradient)
    like = channels_last(y)
    plain = result(
        gpu, max_pool.forward_kernel(dtype, images, window, taps=False), [x_last], like, dtype
    )
    assert_close(channels_first(plain), y, slack=0)
    found, taps = torch.empty_like(plain), torch.empty(like.shape, dtype=torch.uint8)
    run(gpu, max_pool.forward_kernel(dtype, images, window, taps=True), [x_last], [found, taps])
    torch.testing.assert_close(found, plain, rtol=0, atol=0, equal_nan=True)
    assert torch.equal(_pixels_of(channels_first(taps).long(), window, w), indices)
    backward = max_pool.backward_kernel(dtype, images, window)
    found = result(gpu, backward, [gradient_last, taps], x_last, dtype)
    assert_close(channels_first(found), dx, slack=16)


def _pixels_of(taps: Tensor, window: Window, width: int) -> Tensor:
    """What PyTorch calls indices."""
    rows = torch.arange(taps.shape[2])[:, None] * window.stride[0] - window.padding[0]
    columns = torch.arange(taps.shape[3]) * window.stride[1] - window.padding[1]
    y = rows + taps // window.kernel[1] * window.dilation[0]
    x = columns + taps % window.kernel[1] * window.dilation[1]
    return y * width + x


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize(("include", "divisor"), [(True, 0), (False, 0), (True, 5)])
@pytest.mark.parametrize("case", [case for case in POOLINGS if case[7] == (1, 1)])
def test_average_pool(gpu: Any, dtype: str, include: bool, divisor: int, case: Any) -> None:
    n, c, h, w, kernel, stride, padding, _, ceil = case
    x = drawn(n, c, h, w, dtype=dtype)
    exact = x.double().requires_grad_()
    y = functional.avg_pool2d(exact, kernel, stride, padding, ceil, include, divisor or None)
    arguments = dtype, sizes(x, y), Window(kernel, stride, padding), include, divisor
    forward, backward = (
        average_pool.forward_kernel(*arguments),
        average_pool.backward_kernel(*arguments),
    )
    _check_average(gpu, dtype, x, exact, y, forward, backward)


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("size", [(1, 1), (6, 6), (3, 2), (1, 4), (20, 9)])
@pytest.mark.parametrize("shape", [(2, 8, 7, 7), (1, 5, 13, 6), (3, 300, 4, 4), (1, 40, 30, 29)])
def test_adaptive_average_pool(
    gpu: Any, dtype: str, size: tuple[int, int], shape: tuple[int, int, int, int]
) -> None:
    x = drawn(*shape, dtype=dtype)
    exact = x.double().requires_grad_()
    y = functional.adaptive_avg_pool2d(exact, size)
    arguments = dtype, sizes(x, y)
    forward = adaptive_average_pool.forward_kernel(*arguments)
    backward = adaptive_average_pool.backward_kernel(*arguments)
    _check_average(gpu, dtype, x, exact, y, forward, backward)


def _check_average(
    gpu: Any, dtype: str, x: Tensor, exact: Tensor, y: Tensor, forward: Kernel, backward: Kernel
) -> None:
    gradient = drawn(*y.shape, dtype=dtype, seed=1)
    (dx,) = torch.autograd.grad(y, exact, gradient.double())
    x_last = channels_last(x)
    found = result(gpu, forward, [x_last], channels_last(y), dtype)
    assert_close(channels_first(found), y)
    found = result(gpu, backward, [channels_last(gradient)], x_last, dtype)
    assert_close(channels_first(found), dx, slack=16)


# ---------------------------------------------------------------- pointwise


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("activation", ACTIVATIONS, ids=text)
def test_activations_and_their_gradients(gpu: Any, dtype: str, activation: Activation) -> None:
    name, numbers = activation.name, activation.numbers
    function = activation_functions()[name]
    x = (drawn(1003) * 4).to(torch_type(dtype))
    x[:4] = torch.tensor([torch.nan, 0.0, 300.0, -300.0])
    kernel = pointwise([value(activation, "a")], [Operand(dtype)], [dtype], x.numel())
    y = result(gpu, kernel, [x], x, dtype)
    assert_close(y, function.forward(x.double(), *numbers), slack=8)
    gradient = drawn(1003, dtype=dtype)
    for of, from_result in ((x, False), (y, True)):
        there = formulas()[name]
        if (there.from_result if from_result else there.from_argument) is None:
            continue
        of = of[1:]  # the gradient of NaN is left open
        expression = derivative(activation, "a", "b", from_result)
        kernel = pointwise([expression], [Operand(dtype)] * 2, [dtype], of.numel())
        found = result(gpu, kernel, [gradient[1:].clone(), of.clone()], of, dtype)
        expected = function.backward(gradient[1:].double(), of.double(), *numbers)
        assert_close(found, expected, slack=4 if from_result else 16)


@pytest.mark.parametrize("channels", [1, 3, 6, 8, 64])
@pytest.mark.parametrize("dtype", TYPES)
def test_kinds_of_operands(gpu: Any, dtype: str, channels: int) -> None:
    x, y = drawn(35, channels, dtype=dtype), drawn(35, channels)
    scale, one = drawn(channels), drawn(1)
    mask = drawn(35, channels) > 0
    operands = [
        Operand(dtype), Operand("float32"), Operand("float32", "channel"),
        Operand("float32", "scalar"), Operand("bool"),
    ]  # fmt: skip
    kernel = pointwise(
        ["(a + b) * c + d * e", "a > b"], operands, ["float32", "bool"], x.numel(), channels
    )
    found, larger = torch.empty(35, channels), torch.empty(35, channels, dtype=torch.bool)
    run(gpu, kernel, [x, y, scale, one, mask], [found, larger])
    assert_close(found, (x.double() + y) * scale + one.double() * mask)
    assert torch.equal(larger, x.float() > y)


def test_long_tensor_is_walked_through(gpu: Any) -> None:
    x = torch.arange(40_000_003, dtype=torch.int32).to(torch.float32)
    kernel = pointwise(["a + 1.0f"], [Operand("float32")], ["float32"], x.numel())
    assert torch.equal(result(gpu, kernel, [x], x, "float32"), x + 1)
