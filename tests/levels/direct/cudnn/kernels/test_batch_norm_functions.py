"""Batch norm for a GPU with activations that do not clip, forward and backward: compilation
anywhere, values on this processor and on a GPU against float64."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor

from golow.levels.direct.cudnn.shared_kernels.batch_norm import batch_norm, batch_norm_backward
from golow.levels.direct.cudnn.shared_kernels.blocks import Launches
from golow.levels.direct.formulas.activation_formulas import RELU, derivative_at_argument, value
from golow.lower.ir.graph import Activation
from golow.lower.ir.operator import activation_functions
from support.direct.kernel_compilation import assert_compile
from support.direct.kernel_launches import ROUNDING, TYPES, drawn, gpu, on_host, run

__all__ = ["gpu"]  # a fixture

Launch = Callable[..., None]
EPSILON = 1e-3
NOTHING = torch.empty(0)
SILU, TANH = Activation(name="silu"), Activation(name="tanh")  # reads the argument; the result
FUNCTIONS = [SILU, TANH, Activation(name="hardswish"), Activation(name="gelu"),
             Activation(name="leaky_relu", numbers=(0.1,))]  # fmt: skip
AT_ONCE, IN_PARTS = (50, 24), (3001, 4)


def forward(activation: Activation, dtype: str, rows: int, channels: int) -> Launches:
    formula = value(activation, "value")
    return batch_norm(
        dtype, rows, channels, momentum=0.1, epsilon=EPSILON, formula=formula, clusters=False
    )


def backward(activation: Activation, dtype: str, rows: int, channels: int) -> Launches:
    formula = derivative_at_argument(activation, "(gradient)", "value")
    return batch_norm_backward(
        dtype, rows, channels, formula=formula, residual=False, clusters=False
    )


def kernels() -> Iterator[Any]:
    for activation in FUNCTIONS:
        for dtype in TYPES:
            for shape in (AT_ONCE, IN_PARTS):
                yield from forward(activation, dtype, *shape).kernels
                yield from backward(activation, dtype, *shape).kernels


def test_they_compile() -> None:
    assert_compile(kernels())


def test_a_clip_or_a_residual_beside_it_is_named() -> None:
    for further in ({"clip": RELU, "residual": False}, {"residual": True}):
        with pytest.raises(ValueError, match="beside that of a clip or a residual"):
            batch_norm_backward("float32", 8, 8, formula="gradient", **further)  # type: ignore[arg-type]


def assert_right(
    launch: Launch, activation: Activation, dtype: str, shape: tuple[int, int]
) -> None:
    """Result and gradients are autograd's in float64, of x as it is stored. The gradient of the
    result comes as two."""
    channels = shape[1]
    x = (2 * drawn(*shape) + drawn(channels)).to(getattr(torch, dtype))
    outer, second = (drawn(*shape, dtype=dtype, seed=seed) for seed in (1, 2))
    scale, shift = drawn(channels, seed=3).abs() + 0.5, drawn(channels, seed=4)
    y, inner = torch.empty_like(x), torch.empty_like(x)
    mean, deviation, of_scale, of_shift = (torch.empty(channels) for _ in range(4))
    rest = [y, mean, deviation, NOTHING, NOTHING, NOTHING]
    launched(launch, forward(activation, dtype, *shape), [x, NOTHING, scale, shift], rest)
    given = [outer, second, NOTHING, x, scale, shift, mean, deviation]
    found = [inner, of_scale, of_shift]
    launched(launch, backward(activation, dtype, *shape), given, [*found, NOTHING])

    leaves = [item.double().requires_grad_() for item in (x, scale, shift)]
    function = activation_functions()[activation.name]
    normed = torch.nn.functional.batch_norm(leaves[0], None, None, *leaves[1:], True, 0.0, EPSILON)
    exact = function.forward(normed, *activation.numbers)
    total = (outer.float() + second.float()).to(outer.dtype).double()
    wanted = torch.autograd.grad(exact, leaves, total)
    limit = 1e-5 + 2 * ROUNDING[dtype]
    assert_near(y, exact.detach(), limit)
    for one, other in zip(found, wanted, strict=True):
        assert_near(one, other, limit if one is inner else 1e-5)


def launched(launch: Launch, launches: Launches, given: list[Tensor], made: list[Tensor]) -> None:
    """Run all kernels in order; each tensor is then what the device has."""
    scratch = torch.full((launches.scratch,), torch.nan)
    for tensor in made:
        tensor.fill_(torch.nan)
    for kernel in launches.kernels:
        launch(kernel, [*given, *made, scratch], [])


def assert_near(found: Tensor, expected: Tensor, limit: float) -> None:
    """The largest distance, in units of the largest number."""
    distance = (found.double() - expected).abs().max()
    assert float(distance) <= limit * float(expected.abs().max())


@pytest.mark.slow
@pytest.mark.parametrize(
    ("activation", "dtype", "shape"), [(SILU, "bfloat16", AT_ONCE), (TANH, "float32", IN_PARTS)]
)
def test_on_this_processor(activation: Activation, dtype: str, shape: tuple[int, int]) -> None:
    assert_right(on_host, activation, dtype, shape)


@pytest.mark.gpu
@pytest.mark.parametrize("shape", [AT_ONCE, IN_PARTS])
@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("activation", FUNCTIONS, ids=lambda item: item.name)
def test_on_a_gpu(gpu: Any, activation: Activation, dtype: str, shape: tuple[int, int]) -> None:
    def launch(*given: Any) -> None:
        run(gpu, *given)

    assert_right(launch, activation, dtype, shape)
