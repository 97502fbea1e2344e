"""Sums and means over an axis in memory: the kernels against float64, and plans of networks that
pool."""

from __future__ import annotations

import tempfile
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, cast

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from cuda_host import run
from cuda_on_cpu import follow
from golow.levels.vendor.cudnn.kernels.reduction import Reduction, reduction
from golow.levels.vendor.cudnn.layouts import pitch_of
from golow.record import Mode
from kernel_compilation import assert_compile
from kernel_launches import ROUNDING, torch_type
from test_cudnn_fused import drawn
from test_cudnn_plans import AskedEngines, built, lowered

if TYPE_CHECKING:
    from golow.levels.vendor.cudnn.engines import Engines

FOLDER = Path(tempfile.mkdtemp(prefix="golow-sums-"))
both_modes = pytest.mark.parametrize("mode", ["infer", "train"])


def added(found: Reduction, x: Tensor, y: Tensor) -> None:
    """Launch both kernels, if there are two, on this processor."""
    partial = torch.full((max(found.partial, 1),), torch.nan)
    tensors = [t.view(-1).view(torch.uint8).numpy() for t in (x, partial, y)]
    if found.second is None:
        run(found.first, [tensors[0], tensors[2]], FOLDER)
    else:
        run(found.first, tensors[:2], FOLDER)
        run(found.second, tensors[1:], FOLDER)


# Lengths of the innermost axis: a single sum, no vectors, one, several, more than a block takes.
INNER = st.sampled_from([1, 3, 8, 24, 144, 520, 1040])


@settings(max_examples=30, deadline=None)
@given(
    outer=st.integers(1, 3), reduced=st.sampled_from([1, 2, 7, 49, 300, 2500]), inner=INNER,
    dtype=st.sampled_from(["float32", "bfloat16", "float16"]), seed=st.integers(0, 99),
)  # fmt: skip
def test_sums_against_float64(outer: int, reduced: int, inner: int, dtype: str, seed: int) -> None:
    torch.manual_seed(seed)
    x = (torch.rand(outer, reduced, inner) + 0.5).to(torch_type(dtype))
    y = torch.full((outer, inner), torch.nan).to(torch_type(dtype))
    added(reduction(dtype, dtype, outer, reduced, inner, 1 / reduced), x, y)
    limit = 4 * ROUNDING[dtype]
    torch.testing.assert_close(y.double(), x.double().mean(1), rtol=limit, atol=0)


@settings(max_examples=20, deadline=None)
@given(
    reduced=st.sampled_from([1, 7, 300, 2500]), inner=st.sampled_from([1, 5, 37, 130, 515]),
    dtype=st.sampled_from(["float32", "bfloat16", "float16"]), seed=st.integers(0, 99),
)  # fmt: skip
def test_rows_with_gaps_against_float64(reduced: int, inner: int, dtype: str, seed: int) -> None:
    """What is in the gaps, here NaN, is no part of any sum, and nothing is written behind the
    last."""
    torch.manual_seed(seed)
    pitch = pitch_of(inner, dtype)
    held = torch.full((reduced, pitch), torch.nan).to(torch_type(dtype))
    held[:, :inner] = torch.rand(reduced, inner) + 0.5
    y = torch.full((inner + 8,), torch.nan)
    added(reduction(dtype, "float32", 1, reduced, inner, 0.5, pitch), held, y)
    wanted = 0.5 * held[:, :inner].double().sum(0)
    torch.testing.assert_close(y[:inner].double(), wanted, rtol=2.0**-20, atol=0)
    assert y[inner:].isnan().all()


def test_rows_with_gaps_are_read_as_vectors() -> None:
    kernel = reduction("bfloat16", "float32", 1, 4096, 30522, pitch=30528).first
    assert kernel.expression == "sum_columns<__nv_bfloat16, float, 8>"


def test_long_sums_fill_the_gpu() -> None:
    """64 images of 112x112x32 keep 576 blocks busy, not 64; short sums have one launch."""
    long = reduction("bfloat16", "bfloat16", 64, 112 * 112, 32)
    assert long.first.grid == (64, 9, 1)
    assert long.first.block == (4, 64, 1)
    assert long.second is not None
    assert long.second.grid == (64, 1, 1)
    short = reduction("bfloat16", "bfloat16", 64, 49, 1280)
    assert short.second is None
    assert short.first.grid == (64 * 3, 1, 1)


def test_threads_of_a_block_take_whole_rows() -> None:
    """144 channels are 18 vectors: 14 rows at once, and four threads of 256 are not there."""
    kernel = reduction("bfloat16", "bfloat16", 64, 56 * 56, 144).first
    assert kernel.block == (18, 14, 1)
    assert kernel.expression == "sum_columns<__nv_bfloat16, float, 8>"


def test_more_blocks_than_a_grid_takes_are_refused() -> None:
    with pytest.raises(ValueError, match="the limit is 2147483647"):
        reduction("float32", "float32", 2**31, 2, 1)


def test_kernels_compile() -> None:
    cases = [("bfloat16", "bfloat16", 144), ("float16", "float32", 3), ("float32", "bfloat16", 1)]
    assert_compile(reduction(*types, 2, 5000, inner).first for *types, inner in cases)


class Squeezed(nn.Module):
    """Squeeze and excitation, and the mean of the image in the end."""

    def __init__(self, pooled: bool) -> None:
        super().__init__()
        self.first, self.squeeze = nn.Conv2d(8, 8, 3), nn.Conv2d(8, 8, 1)
        self.last, self.pooled = nn.Linear(8, 2), pooled

    def forward(self, x: Tensor) -> Tensor:
        x = self.first(x)
        x = torch.sigmoid(self.squeeze(nn.functional.silu(x).mean((2, 3), keepdim=True))) * x
        pooled = (
            nn.functional.adaptive_avg_pool2d(x, 1).flatten(1) if self.pooled else x.mean((2, 3))
        )
        return self.last(pooled)


@both_modes
@pytest.mark.parametrize("pooled", [False, True])
def test_every_mean_is_where_its_plan_says(pooled: bool, mode: Mode) -> None:
    torch.manual_seed(0)
    graph = lowered(Squeezed(pooled), mode, (2, 8, 7, 9))
    tensors = {item.value.name: drawn(item.value) for item in graph.inputs}
    follow(graph, cast("Engines", AskedEngines()), tensors, FOLDER)


def test_means_of_efficientnet_are_vectors_of_many_blocks() -> None:
    """16 squeezes and the pooling before the last layer. A long mean is a sum in two steps."""
    made, _ = built("efficientnet_b0", "infer", "bf16", 224)
    means = [step for step in made.plan.steps if "pool" in step.operation]
    assert all(step.implementation.startswith("sum_columns") for step in means)
    counted = Counter(step.implementation.split(", ")[-1] for step in means)
    assert set(counted) == {"8>", "4>"}, "16 bytes of halves, and of partial sums"
