"""Depthwise convolutions that read each row of the image once, against float64 and against those
that read it for every row of taps. The kernels run on this processor."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from torch.nn import functional

from golow.levels.direct.cudnn.engines import golow_convolution
from golow.levels.direct.cudnn.problems.products import Convolution
from golow.levels.direct.cudnn.shared_kernels import depthwise
from golow.levels.direct.cudnn.shared_kernels.depthwise import Tiling
from support.direct.cuda_host import run
from support.direct.kernel_compilation import assert_compile
from support.direct.kernel_launches import ROUNDING, channels_first, channels_last, torch_type
from support.examples import examples

SILU = "value / (1.0f + expf(-value))"


def layer(
    images: int, size: tuple[int, int], channels: int, window: int, stride: int, padding: int,
    dtype: str = "float32",
) -> Convolution:  # fmt: skip
    out = [(n + 2 * padding - window) // stride + 1 for n in size]
    return Convolution(
        direction="forward", image=(images, channels, *size), output=(images, channels, *out),
        kernel=(window, window), stride=(stride, stride), padding=(padding,) * 4, dilation=(1, 1),
        groups=channels, dtype=dtype, result=dtype, arithmetic="ieee",
    )  # fmt: skip


def result(
    operation: Convolution, tiling: Tiling, x: Tensor, weight: Tensor, bias: Tensor | None
) -> Tensor:
    """What the kernel writes, [N, C, H, W]; NaN where it writes nothing."""
    dtype = operation.dtype
    (kernel,) = depthwise.forward(
        dtype,
        dtype,
        golow_convolution.geometry_of(operation),
        clip=(-8.0, 8.0),
        formula=SILU,
        tiling=tiling,
    ).kernels
    images, channels, height, width = operation.output
    y = torch.full((images, height, width, channels), torch.nan).to(torch_type(dtype))

    def raw(tensor: Tensor) -> np.ndarray:
        return tensor.contiguous().view(-1).view(torch.uint8).numpy()

    arrays = [raw(channels_last(x)), raw(weight), None if bias is None else raw(bias), raw(y)]
    run(kernel, arrays)
    return channels_first(y)


# Window, stride, channels of a vector and pixels of a thread: each is compiled.
FORMS = [(3, 1, 4, 4), (3, 2, 4, 2), (5, 1, 4, 2), (5, 2, 1, 4), (7, 1, 2, 2), (7, 2, 4, 1)]


@pytest.mark.slow
@examples(24)
@given(
    form=st.sampled_from(FORMS), images=st.integers(1, 3), height=st.integers(7, 13),
    width=st.integers(7, 13), vectors=st.integers(1, 9), padding=st.integers(0, 3),
    length=st.integers(1, 13), dtype=st.sampled_from(["float32", "bfloat16", "float16"]),
    biased=st.booleans(), seed=st.integers(0, 99),
)  # fmt: skip
def test_rolling_against_float64_and_sliding(
    form: tuple[int, int, int, int], images: int, height: int, width: int, vectors: int,
    padding: int, length: int, dtype: str, biased: bool, seed: int,
) -> None:  # fmt: skip
    """Both add in the same order, so that they agree bit for bit."""
    window, stride, vector, strip = form
    channels = vectors * vector
    operation = layer(images, (height, width), channels, window, stride, padding, dtype)
    torch.manual_seed(seed)
    x = torch.randn(images, channels, height, width).to(torch_type(dtype))
    weight = (torch.randn(channels, 1, window, window) / window).to(torch_type(dtype))
    bias = torch.randn(channels) if biased else None
    sliding = Tiling(vector, 4, strip)
    found = result(operation, sliding._replace(run=length), x, weight, bias)
    exact = functional.conv2d(
        x.double(), weight.double(), None if bias is None else bias.double(), stride, padding,
        groups=channels,
    )  # fmt: skip
    limit = 8 * ROUNDING[dtype]
    expected = functional.silu(exact.clamp(-8, 8))
    torch.testing.assert_close(found.double(), expected, rtol=limit, atol=limit)
    assert torch.equal(found, result(operation, sliding, x, weight, bias))


# Window, stride, channels of a vector, pixels of a thread, rows and strips of a block.
TILES = [(3, 1, 4, 4, 8, 2), (3, 2, 2, 7, 7, 1), (5, 1, 4, 7, 7, 2), (5, 2, 1, 4, 3, 2),
         (7, 1, 4, 7, 7, 1), (7, 2, 2, 4, 2, 1)]  # fmt: skip


@pytest.mark.slow
@examples(24)
@given(
    form=st.sampled_from(TILES), images=st.integers(1, 3), height=st.integers(7, 17),
    width=st.integers(7, 17), vectors=st.integers(1, 9), padding=st.integers(0, 3),
    dtype=st.sampled_from(["float32", "bfloat16", "float16"]), biased=st.booleans(),
    seed=st.integers(0, 99),
)  # fmt: skip
def test_tiles_against_float64_and_sliding(
    form: tuple[int, int, int, int, int, int], images: int, height: int, width: int, vectors: int,
    padding: int, dtype: str, biased: bool, seed: int,
) -> None:  # fmt: skip
    """Images smaller than a tile, and such that tiles reach beyond; fewer channels than a block's.
    Padding adds zeros, which changes no sum."""
    window, stride, vector, strip, rows, strips = form
    operation = layer(images, (height, width), vectors * vector, window, stride, padding, dtype)
    torch.manual_seed(seed)
    x = torch.randn(images, vectors * vector, height, width).to(torch_type(dtype))
    weight = (torch.randn(vectors * vector, 1, window, window) / window).to(torch_type(dtype))
    bias = torch.randn(vectors * vector) if biased else None
    sliding = Tiling(vector, 4, strip)
    tiled = sliding._replace(rows=rows, strips=strips)
    found = result(operation, tiled, x, weight, bias)
    exact = functional.conv2d(
        x.double(), weight.double(), None if bias is None else bias.double(), stride, padding,
        groups=vectors * vector,
    )  # fmt: skip
    limit = 8 * ROUNDING[dtype]
    expected = functional.silu(exact.clamp(-8, 8))
    torch.testing.assert_close(found.double(), expected, rtol=limit, atol=limit)
    assert torch.equal(found, result(operation, sliding, x, weight, bias))


LAYERS = [
    layer(64, (112, 112), 32, 3, 1, 1, "bfloat16"),
    layer(64, (112, 112), 96, 3, 2, 1, "float16"),
    layer(64, (14, 14), 480, 5, 1, 2, "bfloat16"),
    layer(8, (56, 56), 96, 7, 1, 3, "bfloat16"),
    layer(8, (7, 7), 768, 7, 1, 3, "float32"),
    layer(1, (9, 9), 3, 7, 2, 3, "float32"),
]


@pytest.mark.parametrize("operation", LAYERS)
def test_tilings_that_roll_come_after_the_others(operation: Convolution) -> None:
    """Without timing the first is taken, as before; six are timed, and those among them."""
    tilings = depthwise.tilings(operation.dtype, golow_convolution.geometry_of(operation))
    rolling = [tiling for tiling in tilings if tiling.run]
    assert rolling and len(tilings) <= 6
    assert tilings[-len(rolling) :] == rolling
    assert not tilings[0].run and not tilings[0].rows
    assert any(tiling.rows for tiling in tilings)
    rows = -(-operation.kernel[0] // operation.stride[0])
    for tiling in rolling:
        assert rows * tiling.strip * tiling.width <= depthwise.MOST_SUMS
        assert 1 <= tiling.run <= operation.output[2]
        assert 1 <= tiling.strip <= operation.output[3]


def test_rows_that_are_read_once_anyway_do_not_roll() -> None:
    for operation in (layer(2, (8, 8), 4, 1, 1, 0), layer(2, (8, 8), 4, 2, 2, 0)):
        tilings = depthwise.tilings("float32", golow_convolution.geometry_of(operation))
        assert not any(tiling.run for tiling in tilings)


def test_an_engine_is_restored_with_its_tiling() -> None:
    operation = LAYERS[3]
    engines = list(golow_convolution.own_engines(operation, None, 6))  # type: ignore[arg-type]
    assert any("x" in engine.name.split("/")[1] for engine in engines)
    for engine in engines:
        again = golow_convolution.restore(operation, None, engine.encode())  # type: ignore[arg-type]
        assert again.name == engine.name


def test_kernels_compile() -> None:
    for operation in LAYERS:
        geometry, dtype = golow_convolution.geometry_of(operation), operation.dtype
        for tiling in depthwise.tilings(dtype, geometry):
            launches = depthwise.forward(dtype, dtype, geometry, formula=SILU, tiling=tiling)
            assert_compile(launches.kernels)
