"""The first convolution over blocks of 2x2 pixels. `Case.after` holds every stage against the one
before."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from golow.levels.vendor.weight_arithmetic import blocked_weight
from golow.lower.canonical import canonicalise
from golow.lower.operators.blocked_weight import BlockedWeight
from golow.lower.operators.convolution import Convolution
from golow.lower.operators.pixel_unshuffle import PixelUnshuffle
from golow.lower.stem import block_first_convolution
from lowering import Case, count, only, record

PASSES = (canonicalise, block_first_convolution)


def blocked(layer: nn.Module, *shape: int) -> int:
    """How many convolutions the pass rearranged."""
    torch.manual_seed(0)
    return count(Case(layer, torch.randn(shape)).after(*PASSES), PixelUnshuffle)


@pytest.mark.parametrize("padding", [0, 1, 2, 3, (3, 1)])
@pytest.mark.parametrize("kernel", [3, 4, 5, 7, (7, 3)])
def test_the_same_convolution(kernel: int, padding: int) -> None:
    assert blocked(nn.Conv2d(3, 5, kernel, 2, padding), 2, 3, 12, 14) in (0, 1)


def test_the_first_layer_of_resnet() -> None:
    graph = Case(nn.Conv2d(3, 8, 7, 2, 3), torch.randn(2, 3, 12, 14)).after(*PASSES)
    fused = record(graph, Convolution)
    assert (fused.stride, fused.padding) == ((1, 1), (2, 2, 1, 1))
    assert only(graph, BlockedWeight).outputs[0].shape == (8, 12, 4, 4)  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("layer", "shape"),
    [
        (nn.Conv2d(3, 8, 7, 1, 3), (2, 3, 12, 14)),
        (nn.Conv2d(8, 8, 7, 2, 3), (2, 8, 12, 14)),
        (nn.Conv2d(3, 8, 7, 2, 3), (2, 3, 13, 14)),
        (nn.Conv2d(3, 6, 7, 2, 3, groups=3), (2, 3, 12, 14)),
        (nn.Conv2d(3, 8, 3, 2, 2, dilation=2), (2, 3, 12, 14)),
        (nn.Conv2d(3, 8, 2, 2), (2, 3, 12, 14)),
        (nn.Sequential(nn.ReLU(), nn.Conv2d(3, 8, 7, 2, 3)), (2, 3, 12, 14)),
    ],
    ids=["stride", "channels", "odd", "groups", "dilation", "small", "no image"],
)
def test_others_stay(layer: nn.Module, shape: tuple[int, ...]) -> None:
    assert blocked(layer, *shape) == 0


@settings(max_examples=40, deadline=None)
@given(sizes=st.tuples(*[st.integers(1, 7)] * 4), top=st.integers(0, 4), left=st.integers(0, 4))
def test_numpy_arranges_weights_as_torch_does(sizes: tuple[int, ...], top: int, left: int) -> None:
    weight = torch.arange(float(np.prod(sizes))).reshape(sizes)
    wanted = BlockedWeight.meaning(weight, top, left).numpy()
    assert np.array_equal(blocked_weight(weight.numpy(), top, left), wanted)
