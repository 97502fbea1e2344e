"""Depthwise convolutions of ranges of wider images: the numbers are those of images without gaps,
and nothing is written between the pixels."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from golow.levels.direct.cudnn.engines import golow_convolution
from golow.levels.direct.cudnn.problems.products import Convolution
from golow.levels.direct.cudnn.shared_kernels import depthwise
from golow.levels.direct.cudnn.shared_kernels.blocks import Launches
from support.direct.kernel_launches import TYPES, drawn, gpu, on_host, run

__all__ = ["gpu"]  # a fixture

Launch = Callable[..., None]
BEFORE = 9.0  # what is between the pixels
CHANNELS = 8


def operation(dtype: str, window: int, stride: int, wide: bool) -> Convolution:
    images, size, padding = 2, (9, 7), window // 2
    out = [(n + 2 * padding - window) // stride + 1 for n in size]
    return Convolution(
        direction="forward", image=(images, CHANNELS, *size), output=(images, CHANNELS, *out),
        kernel=(window, window), stride=(stride, stride), padding=(padding,) * 4, dilation=(1, 1),
        groups=CHANNELS, dtype=dtype, result=dtype, arithmetic="ieee",
        image_pitch=24 if wide else 0, output_pitch=40 if wide else 0,
    )  # fmt: skip


def launched(launch: Launch, launches: Launches, tensors: list[Tensor]) -> None:
    for kernel in launches.kernels:
        launch(kernel, tensors, [])


def widened(pixels: Tensor, pitch: int) -> Tensor:
    """Rows of channels with gaps after them."""
    return functional.pad(pixels, (0, max(pitch - CHANNELS, 0)), value=BEFORE)


def results(launch: Launch, wanted: Convolution, tiling: Any) -> list[Tensor]:
    """The result, and the gradients of image and weight; images as rows of channels, with gaps."""
    geometry, dtype = golow_convolution.geometry_of(wanted), wanted.dtype
    pixels, outer = (shape[0] * shape[2] * shape[3] for shape in (wanted.image, wanted.output))
    x = widened(drawn(pixels, CHANNELS, dtype=dtype), wanted.image_pitch)
    dy = widened(drawn(outer, CHANNELS, dtype=dtype, seed=1), wanted.output_pitch)
    taps = wanted.kernel[0] * wanted.kernel[1]
    weight, bias = drawn(CHANNELS, taps, dtype=dtype, seed=2), drawn(CHANNELS, seed=3)
    y, dx, dw = torch.full_like(dy, BEFORE), torch.full_like(x, BEFORE), torch.empty(CHANNELS, taps)
    forward = depthwise.forward(dtype, dtype, geometry, tiling=tiling)
    launched(launch, forward, [x, weight, bias, y])
    launched(launch, depthwise.backward_data(dtype, dtype, geometry), [dy, weight, dx])
    of_weight = depthwise.backward_weight(dtype, geometry)
    launched(launch, of_weight, [dy, x, dw, torch.empty(max(of_weight.scratch, 1))])
    return [y, dx, dw]


def assert_ranges(launch: Launch, dtype: str, window: int, stride: int, first: bool) -> None:
    """first: only the first tiling."""
    plain, wide = (operation(dtype, window, stride, wide) for wide in (False, True))
    tilings = depthwise.tilings(dtype, golow_convolution.geometry_of(plain))
    assert tilings == depthwise.tilings(dtype, golow_convolution.geometry_of(wide))
    for tiling in tilings[:1] if first else tilings:
        pairs = zip(results(launch, plain, tiling), results(launch, wide, tiling), strict=True)
        for one, other in pairs:
            assert torch.equal(one, other[:, : one.shape[1]])
            assert bool((other[:, one.shape[1] :] == BEFORE).all())


def test_ranges_on_this_processor() -> None:
    assert_ranges(on_host, "float32", 3, 1, first=True)


@pytest.mark.gpu
@pytest.mark.parametrize(("window", "stride"), [(3, 1), (3, 2), (5, 1), (7, 2)])
@pytest.mark.parametrize("dtype", TYPES)
def test_ranges(gpu: Any, dtype: str, window: int, stride: int) -> None:
    def launch(kernel: Any, tensors: list[Tensor], made: list[Tensor]) -> None:
        run(gpu, kernel, tensors, made)

    assert_ranges(launch, dtype, window, stride, first=False)
