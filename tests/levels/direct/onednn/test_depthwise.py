"""The kernel for gradients of depthwise weights, against PyTorch's in float64."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch.nn import functional

from golow.levels.compiler import find_compiler
from golow.levels.direct.onednn.kernels.depthwise import (
    LINE,
    Images,
    Taps,
    Weight,
    weight_gradient,
)
from golow.levels.direct.onednn.level import probe
from support.direct.onednn_kernels import run

pytestmark = [
    pytest.mark.skipif(not probe().available, reason="oneDNN is not installed"),
    pytest.mark.skipif(find_compiler() is None, reason="there is no C++ compiler"),
]

TAPS = {
    "larger than the image": Taps((5, 5), (1, 1), (1, 1), (2, 2)),
    "striding": Taps((3, 2), (2, 3), (1, 1), (1, 0)),
    "with holes": Taps((2, 3), (1, 1), (3, 2), (3, 2)),
    "wide": Taps((1, 9), (1, 1), (1, 1), (0, 4)),
}


@pytest.mark.parametrize("threads_share", [False, True])
@pytest.mark.parametrize("images", [Images(3, 1, LINE + 3), Images(2, 2, LINE)], ids=str)
@pytest.mark.parametrize("name", TAPS)
def test_gradients_of_depthwise_weights(name: str, images: Images, threads_share: bool) -> None:
    taps, pixels = TAPS[name], (3, 40) if threads_share else (3, 4)
    channels = images.blocks * images.columns
    torch.manual_seed(0)
    x = torch.randn(images.images, channels, *pixels).double()
    weight = torch.randn(channels, 1, *taps.size).double().requires_grad_()
    bias = torch.zeros(channels).double().requires_grad_()
    y = functional.conv2d(
        x, weight, bias, taps.stride, taps.padding, taps.distance, groups=channels
    )
    outer = torch.randn_like(y)
    y.backward(outer)
    (down, across), result = taps.size, (y.shape[2], y.shape[3])
    found, of_bias = (np.full(n, np.nan, np.float32) for n in (weight.numel(), channels))
    in_blocks = Weight(images.columns, down * across * images.columns, across * images.columns,
                       images.columns)  # fmt: skip
    row_major = Weight(1, down * across, across, 1)
    for where in (in_blocks, row_major):
        kernel = weight_gradient(images, pixels, result, taps, where, biased=True)
        run(kernel, stored(x, images), stored(outer, images), found, of_bias)
        order = (images.blocks, down, across, images.columns) if where is in_blocks else ()
        gradient = found.reshape(order or weight.shape)
        if order:
            gradient = np.moveaxis(gradient, 3, 1).reshape(weight.shape)
        assert weight.grad is not None
        assert bias.grad is not None
        np.testing.assert_allclose(gradient, weight.grad, rtol=1e-5, atol=1e-5)
        np.testing.assert_allclose(of_bias, bias.grad, rtol=1e-5, atol=1e-5)


def stored(x: torch.Tensor, images: Images) -> np.ndarray:
    """An image in memory: [images, blocks, rows, columns, channels of a block]."""
    parts = x.unflatten(1, (images.blocks, images.columns)).float().permute(0, 1, 3, 4, 2)
    return np.ascontiguousarray(parts.numpy())
