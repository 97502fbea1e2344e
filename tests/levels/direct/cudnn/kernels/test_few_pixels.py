"""Convolutions of few pixels on tensor cores: compilation, tilings and the engine anywhere, values
on a GPU against float64."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
import torch
from torch import Tensor
from torch.nn import functional

from golow.levels.direct.cudnn.engines.few_pixel_convolution import restore, small_engines
from golow.levels.direct.cudnn.problems import products
from golow.levels.direct.cudnn.shared_kernels import Kernel, few_pixels
from golow.levels.direct.cudnn.shared_kernels.direct_convolution import Convolution
from golow.levels.direct.cudnn.shared_kernels.few_pixels import Tiling
from golow.levels.direct.formulas.activation_formulas import NO_CLIP, RELU, Clip
from support.direct.kernel_compilation import assert_compile
from support.direct.kernel_launches import TYPES, drawn, gpu, on_host, run, torch_type

__all__ = ["gpu"]  # a fixture

NOTHING = torch.empty(0)
EVERY_TILING = [Tiling(*tile, split) for tile in few_pixels.TILES for split in few_pixels.SPLITS]
# One rounding of the result, and for float32 those of a sum, which tensor cores cut off.
LIMIT = {"float32": 1e-5, "bfloat16": 2.0**-8, "float16": 2.0**-10}


def convolution(
    images: int, size: tuple[int, int], channels: int, filters: int, kernel: tuple[int, int],
    stride: tuple[int, int] = (1, 1), padding: tuple[int, int, int, int] = (0, 0, 0, 0),
    dilation: tuple[int, int] = (1, 1),
) -> Convolution:  # fmt: skip
    """padding: top, left, bottom, right."""
    sizes = zip(size, padding[:2], padding[2:], dilation, kernel, stride, strict=True)
    out = [(n + a + b - d * (k - 1) - 1) // s + 1 for n, a, b, d, k, s in sizes]
    return Convolution(
        images, *size, channels, filters, out[0], out[1], kernel, stride, padding[:2], dilation
    )


AROUND = (1, 1, 1, 1)
SHAPES = [
    convolution(2, (5, 6), 8, 8, (3, 3), padding=AROUND),
    convolution(1, (1, 1), 16, 24, (1, 1)),
    convolution(3, (7, 5), 24, 104, (3, 3), (2, 2), (0, 0, 1, 1)),
    convolution(2, (6, 6), 72, 64, (3, 3), padding=AROUND),
    convolution(1, (9, 8), 40, 40, (5, 3), (2, 1), (2, 1, 2, 1)),
    convolution(1, (9, 11), 8, 16, (3, 2), (1, 2), (2, 0, 0, 1), (2, 3)),
    convolution(5, (4, 3), 32, 8, (1, 1), (2, 2)),
    convolution(1, (3, 3), 8, 136, (3, 3), padding=(4, 4, 4, 4)),
    convolution(1, (12, 13), 8, 8, (7, 7), (2, 2), (3, 3, 3, 3)),
    convolution(1, (9, 8), 24, 40, (3, 2), padding=(2, 0, 0, 1), dilation=(2, 3)),
    convolution(33, (1, 1), 256, 40, (1, 1)),
    convolution(32, (2, 2), 256, 256, (3, 3), padding=AROUND),
]
ALL_CHUNKS = convolution(3, (5, 6), 64, 24, (3, 3), padding=AROUND)
FOUR_CHANNELS = convolution(1, (12, 13), 4, 20, (7, 7), (2, 2), (3, 3, 3, 3))
LATE_LAYER = convolution(1, (7, 7), 512, 512, (3, 3), padding=AROUND)
EARLY_LAYER = convolution(32, (112, 112), 64, 64, (3, 3), padding=AROUND)


def every_kernel() -> Iterator[Kernel]:
    for dtype, tiling in product(TYPES, EVERY_TILING):
        yield few_pixels.forward(dtype, SHAPES[0], tiling)
        yield few_pixels.backward_data(dtype, SHAPES[0], tiling)


# ------------------------------------------------------------ without a GPU


def test_every_instantiation_compiles() -> None:
    assert_compile(every_kernel())


def test_without_clusters_it_compiles_for_older_gpus() -> None:
    kernels = (few_pixels.forward(dtype, SHAPES[0], Tiling(32, 32, 1)) for dtype in TYPES)
    assert_compile(kernels, "sm_80")


def test_launches_cover_the_result_by_whole_clusters() -> None:
    for shape, tiling in product(SHAPES, EVERY_TILING):
        kernel = few_pixels.forward("float32", shape, tiling)
        x, y, z = kernel.grid
        assert x % tiling.split == 0 and z == 1
        assert x // tiling.split * tiling.filters >= shape.filters
        assert y * tiling.pixels >= shape.images * shape.out_height * shape.out_width


@pytest.mark.parametrize("dtype", TYPES)
def test_tilings_fill_the_gpu_once_or_twice(dtype: str) -> None:
    tilings = few_pixels.tilings(dtype, LATE_LAYER)
    assert 1 <= len(tilings) <= 10 and len(set(tilings)) == len(tilings)
    blocks = [few_pixels.forward(dtype, LATE_LAYER, tiling).grid[:2] for tiling in tilings]
    assert all(x * y <= 264 for x, y in blocks) and max(x * y for x, y in blocks) > 132


def test_large_problems_are_left_to_the_libraries() -> None:
    assert few_pixels.takes("float32", EARLY_LAYER)
    assert few_pixels.tilings("float32", EARLY_LAYER) == []


def test_every_block_has_something_to_add() -> None:
    assert {tiling.split for tiling in few_pixels.tilings("float32", SHAPES[1])} == {1}
    assert {
        tiling.split for tiling in few_pixels.tilings("float32", LATE_LAYER, clusters=False)
    } == {1}


def test_what_the_kernel_does_not_take_is_refused() -> None:
    assert few_pixels.takes("float32", FOUR_CHANNELS) and not few_pixels.takes(
        "float16", FOUR_CHANNELS
    )
    refused = [
        convolution(1, (4, 4), 6, 8, (3, 3)),
        convolution(1, (4, 4), 8, 6, (3, 3)),
        Convolution(1, 4, 4, 8, 8, 4, 4, (1, 1), groups=2),
    ]
    for shape in refused:
        assert not few_pixels.takes("float32", shape)
        for launched in (few_pixels.forward, few_pixels.backward_data):
            with pytest.raises(ValueError, match="filters in multiples of 4"):
                launched("float32", shape, Tiling(32, 32, 1))
    with pytest.raises(ValueError, match=r"needs the stride \(1, 1\)"):
        few_pixels.turned(SHAPES[2])
    with pytest.raises(ValueError, match="float64"):
        few_pixels.takes("float64", SHAPES[0])


def operation(**changes: Any) -> products.Convolution:
    """32 images of 2 x 2 pixels, as an engine is asked for them."""
    plain = products.Convolution(
        direction="forward", image=(32, 256, 2, 2), output=(32, 256, 2, 2), kernel=(3, 3),
        stride=(1, 1), padding=AROUND, dilation=(1, 1), groups=1, dtype="float32",
        result="float32", arithmetic="tf32",
    )  # fmt: skip
    return msgspec.structs.replace(plain, **changes)


HOPPER: Any = SimpleNamespace(architecture="sm_90")
AMPERE: Any = SimpleNamespace(architecture="sm_80")
TURING: Any = SimpleNamespace(architecture="sm_75")


def test_engines_are_restored_from_what_they_store() -> None:
    engines = list(small_engines(operation(), HOPPER))
    assert engines and all(engine.workspace == 0 for engine in engines)
    again = [restore(operation(), HOPPER, engine.encode()) for engine in engines]
    assert [engine.name for engine in again] == [engine.name for engine in engines]


def test_engines_go_backward_where_the_stride_is_1() -> None:
    assert list(small_engines(operation(direction="backward_data"), HOPPER))
    strided = {"stride": (2, 2), "image": (32, 256, 4, 4)}
    assert list(small_engines(operation(**strided), HOPPER))
    assert not list(small_engines(operation(direction="backward_data", **strided), HOPPER))


def test_engines_are_for_tensor_cores() -> None:
    assert all(engine.name.endswith("/1") for engine in small_engines(operation(), AMPERE))
    assert not list(small_engines(operation(), TURING))
    for changes in (
        {"arithmetic": "ieee"},
        {"direction": "backward_weight"},
        {"groups": 2},
        {"dtype": "bfloat16", "arithmetic": "half"},
    ):
        assert not list(small_engines(operation(**changes), HOPPER)), changes


@pytest.mark.parametrize("shape", [*SHAPES[:-2], ALL_CHUNKS])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_convolution_on_this_processor(dtype: str, shape: Convolution) -> None:
    x, weight, bias, residual = operands(dtype, shape)
    plain = reference(shape, x, weight) + bias.double() + residual.double()
    for tiling in (Tiling(32, 32, 1), Tiling(16, 64, 1)):
        y = torch.empty_like(residual).fill_(float("nan"))
        on_host(
            few_pixels.forward(dtype, shape, tiling, clip=RELU), [x, weight, bias, residual], [y]
        )
        assert_near(y, plain, RELU)


def test_small_images_are_loaded_once() -> None:
    """Where windows overlap and the channels fill whole chunks."""

    def regions(shape: Convolution, dtype: str) -> set[bool]:
        kernels = (
            few_pixels.forward(dtype, shape, Tiling(32, 32, split)) for split in few_pixels.SPLITS
        )
        return {kernel.expression.split(", ")[5] == "true" for kernel in kernels}

    assert regions(SHAPES[-1], "bfloat16") == {True, False}
    assert regions(ALL_CHUNKS, "bfloat16") == {True, False}
    assert regions(SHAPES[0], "bfloat16") == regions(SHAPES[-2], "bfloat16") == {False}


# ------------------------------------------------------------ on a GPU


def reference(shape: Convolution, x: Tensor, weight: Tensor) -> Tensor:
    """In float64, with channels last. Padding on the far sides is what the size of y asks for."""
    out = (shape.out_height, shape.out_width)
    sizes = zip(out, shape.stride, shape.dilation, shape.kernel, x.shape[1:3], shape.padding,
                strict=True)  # fmt: skip
    bottom, right = ((n - 1) * s + d * (k - 1) + 1 - size - a for n, s, d, k, size, a in sizes)
    top, left = shape.padding
    first, taps = (tensor.double().permute(0, 3, 1, 2) for tensor in (x, weight))
    padded = functional.pad(first, (left, right, top, bottom))
    y = functional.conv2d(padded, taps, None, shape.stride, dilation=shape.dilation)
    return y.permute(0, 2, 3, 1)


def exact(x: Tensor) -> Tensor:
    """Floats that are tf32 already, so that what remains are the roundings of the sum."""
    if x.dtype != torch.float32:
        return x
    return ((x.view(torch.int32) + 0x1000) & ~0x1FFF).view(torch.float32)


def operands(dtype: str, shape: Convolution) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Image, weight, bias and residual."""
    out = (shape.images, shape.out_height, shape.out_width, shape.filters)
    x = drawn(shape.images, shape.height, shape.width, shape.channels, dtype=dtype)
    weight = drawn(shape.filters, *shape.kernel, shape.channels, dtype=dtype, seed=1)
    bias, residual = drawn(shape.filters, dtype=dtype, seed=2), drawn(*out, dtype=dtype, seed=3)
    return exact(x), exact(weight), bias, residual


def assert_near(found: Tensor, full: Tensor, clip: Clip = NO_CLIP) -> None:
    """The largest distance from the clipped result, in units of the largest number before that."""
    distance = (found.double() - full.clamp(*clip)).abs().max()
    limit = LIMIT[str(found.dtype).removeprefix("torch.")]
    assert float(distance) <= limit * float(full.abs().max())


@pytest.mark.gpu
@pytest.mark.parametrize("shape", [*SHAPES, FOUR_CHANNELS, ALL_CHUNKS])
@pytest.mark.parametrize("dtype", TYPES)
def test_convolution(gpu: Any, dtype: str, shape: Convolution) -> None:
    if not few_pixels.takes(dtype, shape):
        pytest.skip("channels are no multiple of 8")
    x, weight, bias, residual = operands(dtype, shape)
    plain, y = reference(shape, x, weight), torch.empty_like(residual)
    for tiling in EVERY_TILING:
        kernel = few_pixels.forward(dtype, shape, tiling)
        run(gpu, kernel, [x, weight, NOTHING, NOTHING], [y])
        assert_near(y, plain)
        kernel = few_pixels.forward(dtype, shape, tiling, clip=RELU, frozen=True)
        run(gpu, kernel, [x, weight, bias, residual], [y])
        assert_near(y, plain + bias.double() + residual.double(), RELU)


@pytest.mark.gpu
@pytest.mark.parametrize("shape", [shape for shape in SHAPES if shape.stride == (1, 1)])
@pytest.mark.parametrize("dtype", TYPES)
def test_gradient_of_the_image(gpu: Any, dtype: str, shape: Convolution) -> None:
    x, weight, _, dy = operands(dtype, shape)
    dy, image = exact(dy), x.double().requires_grad_()
    (gradient,) = torch.autograd.grad(reference(shape, image, weight), image, dy.double())
    for tiling in EVERY_TILING:
        kernel, dx = few_pixels.backward_data(dtype, shape, tiling), torch.empty_like(x)
        run(gpu, kernel, [dy, weight, NOTHING, NOTHING], [dx])
        assert_near(dx, gradient)


@pytest.mark.gpu
def test_floats_are_rounded_to_tf32(gpu: Any) -> None:
    shape = SHAPES[3]
    x, weight = drawn(2, 6, 6, 72), drawn(64, 3, 3, 72, seed=1)
    y = torch.empty(2, 6, 6, 64)
    run(
        gpu,
        few_pixels.forward("float32", shape, Tiling(32, 32, 2)),
        [x, weight, NOTHING, NOTHING],
        [y],
    )
    assert_near(y, reference(shape, exact(x), exact(weight)))


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", TYPES)
def test_engine_on_its_operands(gpu: Any, dtype: str) -> None:
    from golow.levels.nvidia.memory import Region

    asked = operation(
        bias=True, residual=True, clip=(0.0, 6.0), dtype=dtype, result=dtype,
        arithmetic="tf32" if dtype == "float32" else "half",
    )  # fmt: skip
    x, weight, bias, residual = operands(dtype, SHAPES[-1])
    added = reference(SHAPES[-1], x, weight) + bias.double() + residual.double()
    regions = [Region(size) for size in asked.operand_bytes]
    for region, tensor in zip(regions, (x, weight, bias, residual), strict=False):
        gpu.upload(region.address, tensor.reshape(-1).view(torch.uint8).numpy())
    for engine in small_engines(asked, gpu):
        engine.run([region.address for region in regions], 0)
        raw = torch.from_numpy(gpu.download(regions[-1].address, (regions[-1].size,), "uint8"))
        y = raw.view(torch_type(dtype)).reshape(residual.shape)
        assert_near(y, added, (0.0, 6.0))
