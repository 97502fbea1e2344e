"""Batch norm whose result, or whose gradients, are ranges of wider images: the numbers are those of
images without gaps, and nothing is written between the rows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from golow.levels.direct.cudnn.shared_kernels.batch_norm import (
    batch_norm,
    batch_norm_backward,
    mask_bytes,
)
from golow.levels.direct.cudnn.shared_kernels.blocks import Launches
from golow.levels.direct.formulas.activation_formulas import RELU
from support.direct.kernel_launches import TYPES, drawn, gpu, on_host, run

__all__ = ["gpu"]  # a fixture

Launch = Callable[..., None]
NOTHING = torch.empty(0)
SHAPES = [(50, 24), (3001, 8)]  # at once, and in parts


def launched(launch: Launch, launches: Launches, tensors: list[Tensor]) -> None:
    scratch = torch.full((launches.scratch,), torch.nan)
    for kernel in launches.kernels:
        launch(kernel, [*tensors, scratch], [])


def forward(launch: Launch, x: Tensor, added: Tensor, pitch: int) -> list[Tensor]:
    """The result in rows of that pitch, mean, inverse deviation and the mask."""
    rows, channels = x.shape
    dtype = str(x.dtype).removeprefix("torch.")
    y = torch.full((rows, pitch or channels), 9.0, dtype=x.dtype)
    statistics = [torch.empty(channels), torch.empty(channels)]
    mask = torch.zeros(mask_bytes(dtype, rows, channels), dtype=torch.uint8)
    scale, shift = drawn(channels, seed=3), drawn(channels, seed=4)
    launches = batch_norm(
        dtype, rows, channels, momentum=0.1, epsilon=1e-5, clip=RELU, pitch=pitch, clusters=False
    )
    tensors = [x, added, scale, shift, y, *statistics, NOTHING, NOTHING, mask]
    launched(launch, launches, tensors)
    return [y, *statistics, mask, scale, shift]


def backward(
    launch: Launch, pair: list[Tensor], x: Tensor, known: list[Tensor], pitches: tuple[int, int]
) -> list[Tensor]:
    """The gradients of x, scale, shift and the residual."""
    (rows, channels), (mean, inverse, mask, scale, shift) = x.shape, known
    found = [torch.empty_like(t) for t in (x, scale, shift, x)]
    launches = batch_norm_backward(
        str(x.dtype).removeprefix("torch."), rows, channels, clip=RELU, masked=True,
        pitches=pitches, clusters=False,
    )  # fmt: skip
    launched(launch, launches, [*pair, mask, x, scale, shift, mean, inverse, *found])
    return found


def assert_ranges(launch: Launch, dtype: str, rows: int, channels: int) -> None:
    x, added, *pair = (drawn(rows, channels, dtype=dtype, seed=seed) for seed in range(4))
    plain, wide = (forward(launch, x, added, pitch) for pitch in (0, channels + 8))
    y = wide[0]
    assert torch.equal(plain[0], y[:, :channels]) and bool((y[:, channels:] == 9).all())
    assert all(torch.equal(one, other) for one, other in zip(plain[1:], wide[1:], strict=True))
    pitches = channels + 8, channels + 16
    apart = [functional.pad(t, (0, p - channels)) for t, p in zip(pair, pitches, strict=True)]
    wanted = backward(launch, pair, x, plain[1:], (0, 0))
    found = backward(launch, apart, x, plain[1:], pitches)
    assert all(torch.equal(one, other) for one, other in zip(wanted, found, strict=True))


def test_ranges_on_this_processor() -> None:
    assert_ranges(on_host, "float32", *SHAPES[0])


@pytest.mark.gpu
@pytest.mark.parametrize(("rows", "channels"), [*SHAPES, (70001, 264)])
@pytest.mark.parametrize("dtype", TYPES)
def test_ranges(gpu: Any, dtype: str, rows: int, channels: int) -> None:
    def launch(kernel: Any, tensors: list[Tensor], made: list[Tensor]) -> None:
        run(gpu, kernel, tensors, made)

    assert_ranges(launch, dtype, rows, channels)
