"""Sums that compute what they add up: the pass, the kernel and whole plans."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from golow.levels.direct.cudnn.operators.fused_reduce import sums_of
from golow.levels.direct.cudnn.planning import arranged
from golow.levels.direct.cudnn.shared_kernels.columns import Sums
from golow.levels.direct.cudnn.shared_kernels.fused_pointwise import Statement
from golow.levels.direct.kernel_views import View
from golow.lower.ir.graph import Graph
from golow.lower.ir.verify import verify
from golow.lower.operators.fused_reduce import FusedReduce
from support.direct.cuda_host import run_sums
from support.direct.kernel_compilation import assert_compile
from support.direct.kernel_launches import ROUNDING, drawn
from support.graphs.lowering import Case, count
from support.graphs.lowering import run as interpreted

# ---------------------------------------------------------------- the kernel

PRODUCT = [
    Statement("t0", "float32", "static_cast<float>(x0) * static_cast<float>(x1)"),
    Statement("t1", "float32", "t0 + 1.0f"),
]


class Added(NamedTuple):
    """Two tensors of one shape, the second one repeated, and the axes that are added up."""

    first: Tensor
    second: Tensor
    axes: Sequence[int]

    def sums(self, mean: bool) -> Sums:
        given = (self.first, self.second)
        views = [View(str(t.dtype).removeprefix("torch."), t.stride()) for t in given]
        return sums_of(PRODUCT, views, views[0].dtype, self.first.shape, self.axes, mean)


def image(*shape: int, dtype: str = "float32") -> Tensor:
    """Channels are last in memory."""
    images, channels, *pixels = shape
    return drawn(images, *pixels, channels, dtype=dtype).permute(0, 3, 1, 2)


ADDED: dict[str, Callable[[], Added]] = {
    "pixels, with a gate": lambda: Added(
        image(2, 24, 9, 7, dtype="bfloat16"), drawn(2, 24, 1, 1).expand(2, 24, 9, 7), (2, 3)
    ),
    "pixels of two images": lambda: Added(image(2, 5, 30, 20), image(2, 5, 30, 20), (2, 3)),
    "an axis between": lambda: Added(
        drawn(3, 20, 4, 8), drawn(3, 8)[:, None, None].expand(3, 20, 4, 8), (1,)
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", ADDED)
def test_sums_against_float64(name: str) -> None:
    case = ADDED[name]()
    exact = case.first.double() * case.second.double() + 1
    wanted = exact.mean(tuple(case.axes))
    found = torch.empty(wanted.shape, dtype=case.first.dtype)
    run_sums(case.sums(mean=True), [seen(case.first), seen(case.second)], [seen(found)])
    limit = 4 * ROUNDING[str(found.dtype).removeprefix("torch.")]
    torch.testing.assert_close(found.double(), wanted, rtol=limit, atol=limit)


def seen(tensor: Tensor) -> np.ndarray:
    """All memory of the tensor."""
    whole = torch.empty(0, dtype=tensor.dtype).set_(tensor.untyped_storage())  # type: ignore[call-overload]
    return whole.view(torch.uint8).numpy()


def test_they_compile() -> None:
    assert_compile(make().sums(mean=False).kernel for make in ADDED.values())


# ---------------------------------------------------------------- the pass


class Gated(nn.Module):
    """Squeeze and excitation: the gradient of the gate is a sum of products."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.gate = nn.Conv2d(3, 8, 3), nn.Conv2d(8, 8, 1)
        self.last, self.head = nn.Conv2d(8, 4, 1), nn.Linear(4, 5)

    def forward(self, x: Tensor) -> Tensor:
        x = self.conv(x)
        x = x * self.gate(x.mean((2, 3), keepdim=True)).sigmoid()
        return self.head(self.last(x).mean((2, 3)))


class Averaged(nn.Module):
    """The mean of functions over tokens, or over features, which are the last axis."""

    def __init__(self, axis: int, kept: bool = False) -> None:
        super().__init__()
        self.axis, self.kept = axis, kept

    def forward(self, x: Tensor) -> Tensor:
        found = torch.exp(x * 2) + 1
        mean = found.mean(self.axis)
        return mean + found.amax(self.axis) if self.kept else mean


def planned(module: nn.Module, x: Tensor, *, train: bool = False) -> Graph:
    """The graph as its plan follows it; it means what the lowered one means."""
    torch.manual_seed(0)
    case = Case(module, x, mode="train" if train else "infer")
    before = case.lowered("cudnn")
    after = verify(arranged(before))
    found, wanted = interpreted(after, case.values), interpreted(before, case.values)
    for name, tensor in wanted.items():
        # A program within a node is not interpreted in float64.
        torch.testing.assert_close(found[name], tensor, check_dtype=False, rtol=1e-5, atol=1e-6)
    return after


def test_the_gradient_of_a_gate_is_one_sum() -> None:
    assert count(planned(Gated(), torch.randn(2, 3, 6, 6), train=True), FusedReduce) == 1


@pytest.mark.parametrize(("axis", "kept", "sums"), [(1, False, 1), (1, True, 0), (2, False, 0)])
def test_what_is_read_elsewhere_and_rows_stay(axis: int, kept: bool, sums: int) -> None:
    assert count(planned(Averaged(axis, kept), torch.randn(2, 5, 8)), FusedReduce) == sums
