"""golow's own convolutions for a GPU, depthwise and direct: compilation and geometry anywhere,
values on a GPU against float64."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from types import ModuleType
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from golow.levels.direct.cudnn.shared_kernels import Kernel, depthwise, direct_convolution
from golow.levels.direct.cudnn.shared_kernels.blocks import Launches
from golow.levels.direct.cudnn.shared_kernels.direct_convolution import Convolution
from golow.levels.direct.formulas.activation_formulas import NO_CLIP, RELU, Clip
from support.direct.kernel_compilation import assert_compile
from support.direct.kernel_launches import (
    ROUNDING,
    TYPES,
    channels_first,
    channels_last,
    drawn,
    gpu,
    run,
)

__all__ = ["gpu"]  # a fixture

CLIPS: list[Clip] = [NO_CLIP, RELU, (0.0, 6.0)]


def convolution(
    images: int, size: tuple[int, int], channels: int, filters: int, kernel: tuple[int, int],
    stride: tuple[int, int] = (1, 1), padding: tuple[int, int, int, int] = (0, 0, 0, 0),
    dilation: tuple[int, int] = (1, 1), groups: int = 1,
) -> Convolution:  # fmt: skip
    """padding: top, left, bottom, right."""
    sizes = zip(size, padding[:2], padding[2:], dilation, kernel, stride, strict=True)
    out = [(n + a + b - d * (k - 1) - 1) // s + 1 for n, a, b, d, k, s in sizes]
    return Convolution(
        images, *size, channels, filters, out[0], out[1], kernel, stride, padding[:2], dilation,
        groups,
    )  # fmt: skip


AROUND = (1, 1, 1, 1)
DEPTHWISE = [
    convolution(2, (5, 6), 8, 8, (3, 3), padding=AROUND, groups=8),
    convolution(1, (7, 9), 24, 24, (3, 3), (2, 2), (0, 0, 1, 1), groups=24),
    convolution(2, (9, 7), 3, 3, (5, 5), padding=(2, 2, 2, 2), groups=3),
    convolution(1, (9, 11), 6, 6, (7, 7), (2, 1), (3, 3, 3, 3), groups=6),
    convolution(2, (8, 13), 10, 10, (3, 2), (1, 2), (2, 0, 0, 1), (2, 3), groups=10),
    convolution(1, (6, 6), 3, 6, (3, 3), padding=AROUND, groups=3),
    convolution(1, (6, 5), 2, 6, (3, 3), (2, 2), AROUND, groups=2),
    convolution(1, (1, 1), 16, 16, (3, 3), padding=AROUND, groups=16),
    convolution(3, (12, 12), 136, 136, (3, 3), padding=AROUND, groups=136),
    convolution(1, (6, 7), 8, 8, (3, 3), padding=(4, 4, 4, 4), groups=8),
    convolution(32, (56, 56), 64, 64, (3, 3), padding=AROUND, groups=64),
]
DIRECT = [
    convolution(2, (12, 12), 1, 6, (5, 5)),
    convolution(2, (7, 7), 6, 16, (5, 5)),
    convolution(1, (9, 8), 3, 10, (3, 3), (2, 2), (0, 0, 1, 1)),
    convolution(1, (7, 7), 6, 9, (3, 3), (2, 1), (2, 1, 0, 3), (2, 1), groups=3),
    convolution(1, (5, 5), 12, 8, (1, 1)),
    convolution(1, (11, 13), 3, 4, (7, 7), (4, 4), (2, 2, 2, 2)),
    convolution(1, (4, 4), 20, 20, (2, 2), (2, 2), groups=2),
    convolution(2, (3, 3), 7, 5, (1, 3), padding=(0, 1, 0, 1)),
    convolution(1, (4, 5), 4, 4, (3, 3), padding=AROUND, groups=4),
    convolution(64, (32, 32), 3, 10, (3, 3), padding=AROUND),
]
CASES = [(depthwise, shape) for shape in DEPTHWISE] + [
    (direct_convolution, shape) for shape in DIRECT
]
MIXED = [("float32", "float32"), ("bfloat16", "bfloat16"), ("float16", "float32")]


def every_launch() -> Iterator[Launches]:
    for (module, shape), (dtype, weight) in product(CASES, MIXED):
        yield module.forward(dtype, weight, shape)
        yield module.backward_data(dtype, weight, shape)
        yield module.backward_weight(dtype, shape)


def every_kernel() -> Iterator[Kernel]:
    for launches in every_launch():
        yield from launches.kernels


# ------------------------------------------------------------ without a GPU


def test_every_instantiation_compiles() -> None:
    assert_compile(every_kernel())


def test_launches_are_within_the_limits_of_the_device() -> None:
    for kernel in every_kernel():
        assert kernel.block[0] * kernel.block[1] <= 256
        x, y, z = kernel.grid
        assert 1 <= x < 2**31 and 1 <= y < 2**16 and z == 1, kernel.expression


def test_scratch_belongs_to_a_second_launch() -> None:
    for launches in every_launch():
        assert bool(launches.scratch) == (len(launches.kernels) == 2)


def test_sums_over_many_pixels_are_taken_in_parts() -> None:
    many, one = DIRECT[-1], DIRECT[4]
    launches = direct_convolution.backward_weight("float32", many)
    assert launches.scratch % many.weights == 0 and launches.scratch > many.weights
    assert direct_convolution.backward_weight("float32", one).scratch == 0


def test_stride_1_goes_backward_by_sliding() -> None:
    def expression(shape: Convolution) -> str:
        (kernel,) = depthwise.backward_data("float32", "float32", shape).kernels
        return kernel.expression

    assert "sliding" in expression(DEPTHWISE[0])
    assert "sliding" not in expression(DEPTHWISE[1]), "a stride leaves gaps"
    assert "sliding" not in expression(DEPTHWISE[5]), "two filters a channel meet in one pixel"


def test_bad_arguments_are_named() -> None:
    with pytest.raises(ValueError, match="at least 1"):
        convolution(0, (4, 4), 4, 4, (3, 3))
    with pytest.raises(ValueError, match="divide both channels and filters"):
        convolution(1, (4, 4), 4, 6, (3, 3), groups=4)
    with pytest.raises(ValueError, match="as many groups as channels"):
        depthwise.forward("float32", "float32", DIRECT[1])
    with pytest.raises(ValueError, match="up to 7 x 7"):
        depthwise.backward_weight("float32", convolution(1, (9, 9), 2, 2, (8, 8), groups=2))
    with pytest.raises(ValueError, match="float64"):
        direct_convolution.forward("float64", "float32", DIRECT[0])
    with pytest.raises(ValueError, match="float64"):
        direct_convolution.backward_data("float32", "float64", DIRECT[0])


# ------------------------------------------------------------ on a GPU

NOTHING = torch.empty(0)


def launch(gpu: Any, launches: Launches, tensors: list[Tensor]) -> None:
    """All kernels in order; every tensor is then what the device has."""
    for kernel in launches.kernels:
        run(gpu, kernel, tensors, [])


def reference(shape: Convolution, x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """In float64, of images and weights with their channels second. The padding on the far sides is
    what the size of y asks for."""
    out = (shape.out_height, shape.out_width)
    sizes = zip(out, shape.stride, shape.dilation, shape.kernel, x.shape[2:], shape.padding,
                strict=True)  # fmt: skip
    bottom, right = ((n - 1) * s + d * (k - 1) + 1 - size - a for n, s, d, k, size, a in sizes)
    top, left = shape.padding
    padded = functional.pad(x, (left, right, top, bottom))
    return functional.conv2d(
        padded, weight, bias, shape.stride, dilation=shape.dilation, groups=shape.groups
    )


def assert_near(found: Tensor, expected: Tensor, limit: float) -> None:
    """The largest distance, in units of the largest number."""
    distance = (channels_first(found).double() - expected).abs().max()
    assert float(distance) <= limit * float(expected.abs().max())


def unset(like: Tensor, dtype: torch.dtype) -> Tensor:
    return torch.full(channels_last(like).shape, torch.nan, dtype=dtype)


@pytest.mark.gpu
@pytest.mark.parametrize(("module", "shape"), CASES)
@pytest.mark.parametrize(("dtype", "weight_dtype"), MIXED)
def test_convolution(
    gpu: Any, dtype: str, weight_dtype: str, module: ModuleType, shape: Convolution
) -> None:
    x = drawn(shape.images, shape.channels, shape.height, shape.width, dtype=dtype)
    sizes = (shape.filters, shape.channels // shape.groups, *shape.kernel)
    weight = drawn(*sizes, dtype=weight_dtype, seed=1)
    bias, limit = drawn(shape.filters, seed=2), 4 * ROUNDING[dtype] + 1e-6
    exact_x, exact_weight = x.double().requires_grad_(), weight.double().requires_grad_()
    exact = reference(shape, exact_x, exact_weight, bias.double())
    dy = drawn(*exact.shape, dtype=dtype, seed=3)
    exact_dx, exact_dw = torch.autograd.grad(exact, (exact_x, exact_weight), dy.double())

    last_x, last_weight, last_dy = channels_last(x), channels_last(weight), channels_last(dy)
    absent = [NOTHING] if module is direct_convolution else []
    for clip in CLIPS:
        y = unset(dy, x.dtype)
        forward = module.forward(dtype, weight_dtype, shape, clip=clip)
        launch(gpu, forward, [last_x, last_weight, bias, *absent, y])
        assert_near(y, exact.detach().clamp(*clip), limit)
    dx, dw = unset(x, x.dtype), unset(weight, torch.float32)
    launch(gpu, module.backward_data(dtype, weight_dtype, shape), [last_dy, last_weight, dx])
    assert_near(dx, exact_dx, limit)
    backward = module.backward_weight(dtype, shape)
    scratch = torch.full((backward.scratch,), torch.nan)
    launch(gpu, backward, [last_dy, last_x, dw, scratch])
    assert_near(dw, exact_dw, 1e-5)


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", TYPES)
def test_direct_with_residual_and_without_bias(gpu: Any, dtype: str) -> None:
    shape = DIRECT[0]
    x, weight = drawn(2, 1, 12, 12, dtype=dtype), drawn(6, 1, 5, 5, dtype=dtype, seed=1)
    residual = drawn(2, 6, 8, 8, dtype=dtype, seed=2)
    y = unset(residual, residual.dtype)
    tensors = [channels_last(x), channels_last(weight), NOTHING, channels_last(residual), y]
    exact = reference(shape, x.double(), weight.double(), torch.zeros(6).double())
    launch(gpu, direct_convolution.forward(dtype, dtype, shape, clip=RELU), tensors)
    assert_near(y, (exact + residual.double()).clamp(min=0), 4 * ROUNDING[dtype] + 1e-6)
