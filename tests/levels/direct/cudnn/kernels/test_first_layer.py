"""A first convolution that reads its batches in place, and the gradient of its weight: values
against float64 on this processor, whose warps multiply as tensor cores do, and on a GPU; which
shapes it takes; and how a plan has it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import product
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as some
from torch import Tensor
from torch.nn import functional

from golow.levels.direct.cudnn.engines.first_convolution import (
    as_first,
    first_engines,
    restore,
    takes_first,
)
from golow.levels.direct.cudnn.problems import products
from golow.levels.direct.cudnn.shared_kernels import Kernel, first_layer
from golow.levels.direct.cudnn.shared_kernels.direct_convolution import Convolution
from golow.levels.direct.formulas.activation_formulas import RELU, Clip
from support.direct.kernel_compilation import assert_compile
from support.direct.kernel_launches import TYPES, drawn, gpu, on_host, run, torch_type

__all__ = ["gpu"]  # a fixture

NOTHING = torch.empty(0)
# One rounding of the result, and for float32 those of a sum.
LIMIT = {"float32": 1e-5, "bfloat16": 2.0**-8, "float16": 2.0**-10}
SECOND = torch.tensor([1], dtype=torch.int32)  # the position of the batch, of two
Launch = Callable[[Kernel, Sequence[Tensor], Sequence[Tensor], Sequence[Tensor]], None]


def convolution(
    images: int, size: tuple[int, int], channels: int, filters: int, kernel: tuple[int, int],
    stride: tuple[int, int] = (1, 1), padding: tuple[int, int] = (0, 0),
) -> Convolution:  # fmt: skip
    sizes = zip(size, padding, kernel, stride, strict=True)
    out = [(n + 2 * p - k) // s + 1 for n, p, k, s in sizes]
    return Convolution(
        images, *size, channels, filters, out[0], out[1], kernel, stride, padding
    )  # fmt: skip


SHAPES = {
    "resnet": convolution(2, (37, 41), 3, 64, (7, 7), (2, 2), (3, 3)),
    "mobilenet": convolution(2, (20, 19), 3, 40, (3, 3), (2, 2), (1, 1)),
    "vgg": convolution(1, (18, 33), 3, 72, (3, 3), padding=(1, 1)),
    "convnext": convolution(1, (21, 24), 3, 96, (4, 4), (4, 4)),
    "grey": convolution(1, (20, 20), 1, 32, (3, 3)),
    "two": convolution(1, (18, 30), 2, 8, (5, 3), (1, 3), (2, 1)),
    "four": convolution(1, (9, 11), 4, 16, (2, 5), (3, 1), (1, 2)),
}


def exact(x: Tensor) -> Tensor:
    """Floats rounded to tf32, ties away from zero."""
    if x.dtype != torch.float32:
        return x
    return ((x.view(torch.int32) + 0x1000) & ~0x1FFF).view(torch.float32)


def forwards(batch: Tensor, weight: Tensor, bias: Tensor | None, shape: Convolution) -> Tensor:
    """In float64, NHWC, of operands as tensor cores read them."""
    x, taps = (exact(t.to(weight.dtype)).double() for t in (batch, weight))
    shift = None if bias is None else bias.double()
    y = functional.conv2d(x, taps.permute(0, 3, 1, 2), shift, shape.stride, shape.padding)
    return y.permute(0, 2, 3, 1)


def operands(dtype: str, shape: Convolution) -> tuple[Tensor, Tensor, Tensor]:
    """Two batches, the weight and the bias."""
    batches = drawn(2, shape.images, shape.channels, shape.height, shape.width)
    weight = drawn(shape.filters, *shape.kernel, shape.channels, dtype=dtype, seed=1)
    return batches, weight, drawn(shape.filters, seed=2)


def assert_near(found: Tensor, full: Tensor, clip: Clip | None = None) -> None:
    """The largest distance from the result, in units of the largest number before its clip."""
    expected = full if clip is None else full.clamp(*clip)
    distance = (found.double() - expected).abs().max()
    limit = LIMIT[str(found.dtype).removeprefix("torch.")]
    assert float(distance) <= limit * float(full.abs().max())


def assert_forward(
    launch: Launch, dtype: str, shape: Convolution, tilings: Sequence[first_layer.Tiling]
) -> None:
    """Plain and with everything that may follow."""
    batches, weight, bias = operands(dtype, shape)
    plain = forwards(batches[1], weight, None, shape)
    shifted = forwards(batches[1], weight, bias, shape)
    for tiling in tilings:
        y = torch.full(plain.shape, float("nan"), dtype=torch_type(dtype))
        kernel = first_layer.forward("float32", dtype, shape, tiling)
        launch(kernel, [batches, SECOND, weight, NOTHING], [y], [])
        assert_near(y, plain)
        kernel = first_layer.forward(
            "float32", dtype, shape, tiling, clip=RELU, formula="value * 0.5f"
        )
        launch(kernel, [batches, SECOND, weight, bias], [y], [])
        assert_near(y, shifted / 2, RELU)


def assert_gradient(launch: Launch, dtype: str, shape: Convolution) -> None:
    batches, weight, _ = operands(dtype, shape)
    taps = exact(weight).double().requires_grad_()
    y = functional.conv2d(
        exact(batches[1].to(weight.dtype)).double(), taps.permute(0, 3, 1, 2), None, shape.stride,
        shape.padding,
    ).permute(0, 2, 3, 1)  # fmt: skip
    dy = drawn(*y.shape, dtype=dtype, seed=3)
    (expected,) = torch.autograd.grad(y, taps, exact(dy).double())
    launches = first_layer.backward_weight("float32", dtype, dtype, shape)
    found = torch.full(weight.shape, float("nan"), dtype=weight.dtype)
    scratch = torch.full((launches.scratch,), float("nan"))
    for kernel in launches.kernels:
        launch(kernel, [batches, SECOND, dy], [found], [scratch])
    assert_near(found, expected)


# ------------------------------------------------------------ without a GPU


@pytest.mark.slow
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("dtype", TYPES)
def test_on_this_processor(dtype: str, shape: str) -> None:
    tilings = first_layer.tilings(dtype, SHAPES[shape])
    assert_forward(on_host, dtype, SHAPES[shape], [tilings[0], tilings[-1]])
    assert_gradient(on_host, dtype, SHAPES[shape])


def kernels_of(dtype: str, shape: Convolution) -> Iterator[Kernel]:
    for tiling in first_layer.tilings(dtype, shape):
        yield first_layer.forward("float32", dtype, shape, tiling)
    yield from first_layer.backward_weight("float32", dtype, dtype, shape).kernels


def test_it_compiles() -> None:
    """For the oldest GPU that has these products, too."""
    some_types = product(TYPES[:2], (SHAPES["resnet"], SHAPES["grey"]))
    kernels = [kernel for dtype, shape in some_types for kernel in kernels_of(dtype, shape)]
    assert_compile(kernels)
    assert_compile(kernels[:2], "sm_80")


sides, windows = some.integers(4, 300), some.integers(1, 11)


@given(
    size=some.tuples(sides, sides), channels=some.integers(1, 4), filters=some.integers(1, 30),
    kernel=some.tuples(windows, windows), stride=some.tuples(*[some.integers(1, 4)] * 2),
    images=some.integers(1, 300), dtype=some.sampled_from(TYPES),
)  # fmt: skip
@settings(deadline=None)
def test_what_is_taken_fits_and_covers_the_result(
    size: tuple[int, int], channels: int, filters: int, kernel: tuple[int, int],
    stride: tuple[int, int], images: int, dtype: str,
) -> None:  # fmt: skip
    if kernel[0] > size[0] or kernel[1] > size[1]:
        return
    shape = convolution(images, size, channels, 8 * filters, kernel, stride)
    if not first_layer.takes(dtype, shape):
        return
    for tiling in first_layer.tilings(dtype, shape):
        launched = first_layer.forward("float32", dtype, shape, tiling)
        across, columns, _ = launched.grid
        tiles = images * -(-shape.out_height // tiling.rows) * -(-shape.out_width // 16)
        assert 1 <= across <= tiles and columns * 32 * tiling.abreast >= shape.filters
        assert launched.block[0] <= 256
    if first_layer.takes_gradient(dtype, shape):
        sums, _ = first_layer.backward_weight("float32", dtype, dtype, shape).kernels
        assert sums.grid[1] * 64 >= shape.filters


@pytest.mark.parametrize(
    "changes",
    [
        {"channels": 5}, {"filters": 60}, {"kernel": (12, 3)}, {"stride": (5, 1)},
        {"dilation": (2, 1)}, {"kernel": (1, 1)}, {"out_height": 3},
    ],
)  # fmt: skip
def test_what_it_does_not_take(changes: dict[str, Any]) -> None:
    shape = replace(SHAPES["resnet"], **changes)
    assert not first_layer.takes("bfloat16", shape)
    with pytest.raises(ValueError, match="first convolution"):
        first_layer.forward("float32", "bfloat16", shape, first_layer.Tiling(1, 1, 1))
    with pytest.raises(ValueError, match="first convolution"):
        first_layer.backward_weight("float32", "bfloat16", "bfloat16", shape)


# ------------------------------------------------------------ the engine


def operation(**changes: Any) -> products.FirstConvolution:
    """ResNet's first layer on images of 32x32, as a plan asks for it."""
    plain = products.Convolution(
        direction="forward", image=(2, 8, 32, 32), output=(2, 64, 16, 16), kernel=(7, 7),
        stride=(2, 2), padding=(3, 3, 3, 3), dilation=(1, 1), groups=1, dtype="bfloat16",
        result="bfloat16", arithmetic="half",
    )  # fmt: skip
    return as_first(msgspec.structs.replace(plain, **changes), (2, 3, 32, 32), "float32")


HOPPER, TURING = (SimpleNamespace(architecture=name) for name in ("sm_90", "sm_75"))


def test_engines_are_restored_from_their_tiling() -> None:
    for asked in (operation(), operation(direction="backward_weight")):
        engines = list(first_engines(asked, HOPPER, 6))  # type: ignore[arg-type]
        assert engines
        for engine in engines:
            again = restore(asked, HOPPER, engine.encode())  # type: ignore[arg-type]
            assert (again.name, again.workspace) == (engine.name, engine.workspace)
    assert not list(first_engines(operation(), TURING, 6))  # type: ignore[arg-type]


def test_what_it_computes_with() -> None:
    assert takes_first(operation()) and takes_first(operation(direction="backward_weight"))
    assert takes_first(operation(dtype="float32", result="float32", arithmetic="tf32"))
    assert not takes_first(operation(arithmetic="ieee"))
    assert not takes_first(operation(residual=True))
    assert not takes_first(operation(result="float32"))
    assert not takes_first(msgspec.structs.replace(operation(), source="float16"))


def test_operands_are_of_one_batch_and_the_input_s_own_channels() -> None:
    image, weight, output = 2 * 3 * 32 * 32 * 4, 64 * 3 * 49 * 2, 2 * 64 * 16 * 16 * 2
    assert operation().operand_bytes == (image, weight, 0, output)
    assert operation(bias=True).operand_bytes == (image, weight, 64 * 4, 0, output)
    gradient = operation(direction="backward_weight").operand_bytes
    assert gradient == (image, output, 0, weight)


# ------------------------------------------------------------ on a GPU


@pytest.mark.gpu
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("dtype", TYPES)
def test_on_a_gpu(gpu: Any, dtype: str, shape: str) -> None:
    def launch(kernel: Kernel, *tensors: Sequence[Tensor]) -> None:
        run(gpu, kernel, *tensors)

    assert_forward(launch, dtype, SHAPES[shape], first_layer.tilings(dtype, SHAPES[shape]))
    assert_gradient(launch, dtype, SHAPES[shape])
