"""The number to which `cudnn` commits: its kernel, as C++, against what every level gives."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from golow.levels.direct.cudnn.problems.layouts import Layout
from golow.levels.direct.cudnn.shared_kernels.commitment_sum import weighing
from golow.levels.direct.kernel_views import View
from golow.worker.results import weights
from support.direct.cuda_host import run
from support.direct.kernel_compilation import assert_compile
from support.direct.kernel_launches import torch_type
from support.examples import examples

SHAPES = [(), (1,), (7,), (3, 5), (2, 5, 3, 4), (2, 3, 1, 1), (4, 1, 6), (2, 100, 9)]


def laid_out(shape: tuple[int, ...], dtype: str, order: str) -> Layout:
    """A layout of that order, if the shape has one."""
    if order == "channels_last" and len(shape) == 4:
        return Layout(dtype, "channels_last", shape[1] + 3)  # padded
    if order == "transposed" and len(shape) > 1:
        return Layout(dtype, "transposed")
    return Layout(dtype)


@pytest.mark.slow
@examples(25)
@given(
    shape=st.sampled_from(SHAPES), first=st.sampled_from([0, 11, 2**32 - 3]),
    dtype=st.sampled_from(["float32", "bfloat16", "int64", "bool"]),
    order=st.sampled_from(["rows", "channels_last", "transposed"]), seed=st.integers(0, 99),
)  # fmt: skip
def test_it_is_the_sum_of_every_level(
    shape: tuple[int, ...], first: int, dtype: str, order: str, seed: int
) -> None:
    torch.manual_seed(seed)
    layout = laid_out(shape, dtype, order)
    memory = (10 * torch.randn(max(layout.elements(shape), 1))).to(torch_type(dtype))
    view = View(dtype, layout.strides(shape))
    kernel = weighing(view, shape, first)
    sums = np.full(kernel.grid[0], np.nan)
    run(kernel, [memory.view(torch.uint8).numpy(), sums.view(np.uint8)])
    seen = memory.as_strided(shape, view.strides).float().numpy()
    expected = float(np.dot(seen.ravel().astype(np.float64), weights(first, seen.size)))
    size = np.sqrt(np.square(seen, dtype=np.float64).sum()) + 1e-30
    assert abs(sums.sum() - expected) <= 1e-5 * size


def test_the_kernels_compile_for_a_gpu() -> None:
    views = [View("bfloat16", (12, 1, 4, 2)), View("int64", (1,), 5)]
    assert_compile([weighing(views[0], (2, 2, 3, 2), 0), weighing(views[1], (3,), 9)])
