"""Sums and means over an axis in memory: the kernels against float64, and plans of networks that
pool."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, cast

import numpy as np
import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st
from torch import Tensor, nn

from golow.levels.direct.cudnn.problems.layouts import pitch_of
from golow.levels.direct.cudnn.shared_kernels.columns import Sums, tiling
from golow.levels.direct.cudnn.shared_kernels.reduction import reduction
from golow.levels.direct.cudnn.steps.built_plan import ARRIVALS
from golow.records.workload import Mode
from support.direct.cuda_host import run, run_sums
from support.direct.cuda_on_cpu import follow
from support.direct.cudnn_plans import AskedEngines, built, lowered
from support.direct.kernel_compilation import assert_compile
from support.direct.kernel_launches import ROUNDING, torch_type
from support.direct.norm_cases import Normed
from support.examples import examples
from support.graphs.drawn_values import drawn

if TYPE_CHECKING:
    from golow.levels.direct.cudnn.engines.engines import Engines

both_modes = pytest.mark.parametrize("mode", ["infer", "train"])


def added(found: Sums, x: Tensor, y: Tensor) -> None:
    """Launch the kernel on this processor."""
    read, written = (t.view(-1).view(torch.uint8).numpy() for t in (x, y))
    run_sums(found, [read], [written])


# Lengths of the innermost axis: a single sum, no vectors, one, several, more than a block takes.
INNER = st.sampled_from([1, 3, 8, 24, 144, 520, 1040])


@pytest.mark.slow
@examples(40)
@given(
    outer=st.integers(1, 3),
    reduced=st.sampled_from([1, 2, 7, 49, 300, 1100, 2504, 40000]), inner=INNER,
    dtype=st.sampled_from(["float32", "bfloat16", "float16"]), seed=st.integers(0, 99),
)  # fmt: skip
def test_sums_against_float64(outer: int, reduced: int, inner: int, dtype: str, seed: int) -> None:
    assume(reduced < 40000 or inner < 24)
    torch.manual_seed(seed)
    x = (torch.rand(outer, reduced, inner) + 0.5).to(torch_type(dtype))
    y = torch.full((outer, inner), torch.nan).to(torch_type(dtype))
    added(reduction(dtype, dtype, outer, reduced, inner, 1 / reduced), x, y)
    limit = 4 * ROUNDING[dtype]
    torch.testing.assert_close(y.double(), x.double().mean(1), rtol=limit, atol=0)


@given(
    outer=st.integers(1, 5000), rows=st.integers(1, 10**6), columns=st.integers(1, 60000),
    dtypes=st.lists(st.sampled_from(["float32", "bfloat16", "float16"]), min_size=1, max_size=2),
)  # fmt: skip
def test_a_grid_takes_all_rows_and_columns(
    outer: int, rows: int, columns: int, dtypes: list[str]
) -> None:
    """Blocks are as large as the GPU takes, no tile and no part is empty, and the memory of a
    block's sums is that of its threads."""
    found = tiling(outer, rows, columns, *dtypes)
    assert columns % found.width == 0
    tile = found.lanes * found.width
    assert (found.tiles - 1) * tile < columns <= found.tiles * tile
    assert found.lanes * found.walkers <= found.threads <= 512
    assert found.parts <= min(rows, 528)
    for each in (1, 2):
        shared = 4 * found.threads * max(4, each * found.width)
        assert shared <= 48 << 10
        if found.parts > 1:  # a thread of the last block takes four sums at once
            assert each * tile <= 4 * found.lanes * found.walkers


@pytest.mark.slow
@examples(20)
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
    kernel = reduction("bfloat16", "float32", 1, 4096, 30522, pitch=30528).kernel
    assert kernel.expression == "sum_columns<__nv_bfloat16, float, 8, 256>"


def test_long_sums_fill_the_gpu() -> None:
    """64 images of 112x112x32 keep 576 blocks busy, not 64; what a few blocks read at once has no
    partial sums."""
    long = reduction("bfloat16", "bfloat16", 64, 112 * 112, 32)
    assert long.kernel.grid == (64, 9, 1)
    assert long.kernel.block == (4, 64, 1)
    assert (long.partial, long.arrivals) == (64 * 9 * 32, 64)
    short = reduction("bfloat16", "bfloat16", 64, 49, 1280)
    assert (short.partial, short.arrivals) == (0, 0)
    assert short.kernel.grid == (64 * 10, 1, 1)
    assert short.kernel.block == (16, 16, 1)


@pytest.mark.parametrize(
    ("rows", "columns", "grid", "block"),
    [
        (64, 768, (12, 1, 1), (8, 16, 1)),
        (1024, 768, (48, 1, 1), (2, 256, 1)),
        (1024, 3072, (192, 1, 1), (2, 256, 1)),
        (12608, 768, (12, 44, 1), (8, 32, 1)),
        (12608, 3072, (48, 11, 1), (8, 32, 1)),
    ],
)
def test_gradients_of_biases_of_transformers(
    rows: int, columns: int, grid: tuple[int, ...], block: tuple[int, ...]
) -> None:
    """Few rows are read at once by threads of one block, of narrow tiles; many in parts."""
    kernel = reduction("bfloat16", "float32", 1, rows, columns).kernel
    assert (kernel.grid, kernel.block) == (grid, block)


def test_few_rows_are_taken_by_whole_blocks() -> None:
    """A sum over four repeated heads is no block of eight threads."""
    kernel = reduction("bfloat16", "bfloat16", 16, 4, 65536).kernel
    assert kernel.block == (128, 1, 1)


@pytest.mark.parametrize(
    ("outer", "reduced", "name", "grid"),
    [
        (12288, 64, "sum_short_rows<__nv_bfloat16, float, 8, 8>", (384, 1, 1)),
        (64, 197, "sum_short_rows<__nv_bfloat16, float, 1, 32>", (8, 1, 1)),
        (12288, 50000, "sum_short_rows<__nv_bfloat16, float, 8, 32>", (1536, 1, 1)),
        (64, 50000, "sum_rows<__nv_bfloat16, float, 8, 256>", (64, 7, 1)),
        (1, 10**6, "sum_rows<__nv_bfloat16, float, 8, 256>", (1, 123, 1)),
    ],
)
def test_sums_of_rows_take_threads_of_a_warp_or_blocks(
    outer: int, reduced: int, name: str, grid: tuple[int, ...]
) -> None:
    kernel = reduction("bfloat16", "float32", outer, reduced, 1).kernel
    assert (kernel.expression, kernel.grid) == (name, grid)


@examples(20)
@given(
    rows=st.integers(1, 400), reduced=st.sampled_from([1, 3, 8, 64, 197, 1024, 8200]),
    dtype=st.sampled_from(["float32", "bfloat16", "float16"]), seed=st.integers(0, 99),
)  # fmt: skip
def test_many_rows_against_float64(rows: int, reduced: int, dtype: str, seed: int) -> None:
    """The last block is not full."""
    assume(rows * reduced < 200_000)
    torch.manual_seed(seed)
    x = (torch.rand(rows, reduced) + 0.5).to(torch_type(dtype))
    y = torch.full((rows,), torch.nan)
    added(reduction(dtype, "float32", rows, reduced, 1), x, y)
    torch.testing.assert_close(y.double(), x.double().sum(1), rtol=1e-6, atol=0)


def test_threads_of_a_block_take_tiles_of_equal_size() -> None:
    """144 channels are 18 vectors: three tiles of six, 42 rows at once, and four threads of 256 are
    not there."""
    kernel = reduction("bfloat16", "bfloat16", 64, 56 * 56, 144).kernel
    assert kernel.block == (6, 42, 1)
    assert kernel.expression == "sum_columns<__nv_bfloat16, __nv_bfloat16, 8, 256>"


def test_more_blocks_than_a_grid_takes_are_refused() -> None:
    with pytest.raises(ValueError, match="the limit is 2147483647"):
        reduction("float32", "float32", 2**31, 2, 8)
    with pytest.raises(ValueError, match=f"the limit is {(2**31 - 1) * 8}"):
        reduction("float32", "float32", 2**34, 300, 1)


def test_kernels_compile() -> None:
    cases = [("bfloat16", "bfloat16", 144), ("float16", "float32", 3), ("float32", "bfloat16", 1)]
    kernels = [reduction(*types, 2, 5000, inner).kernel for *types, inner in cases]
    kernels.append(reduction("float16", "float32", 2, 50, 1).kernel)
    for architecture in ("sm_75", "sm_90"):
        assert_compile(kernels, architecture)


def test_only_the_block_that_arrives_last_adds_all_parts() -> None:
    """A counter that begins at one makes the last but one of them add, and reset the counter, which
    then has counted the last one."""
    sums = reduction("float32", "float32", 1, 3024, 24)
    x, y = np.ones((3024, 24), np.float32), np.zeros(24, np.float32)
    partial = np.zeros(sums.partial, np.float32)
    arrivals = np.ones(sums.arrivals, np.uint32)
    run(sums.kernel, [x, y, partial, arrivals])
    parts = sums.kernel.grid[1]
    assert parts > 2
    np.testing.assert_array_equal(y, 3024 - 3024 / parts)
    np.testing.assert_array_equal(arrivals, 1)


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
    follow(graph, cast("Engines", AskedEngines()), tensors)


@pytest.mark.slow
def test_means_of_efficientnet_are_vectors_of_many_blocks() -> None:
    """16 squeezes and the pooling before the last layer, each one launch of 16-byte loads."""
    made, _ = built("efficientnet_b0", "infer", "bf16", 224)
    means = [step.implementation for step in made.plan.steps if "pool" in step.operation]
    assert len(means) == 17
    for mean in means:
        assert mean.startswith("sum_columns<__nv_bfloat16, __nv_bfloat16, 8, ")


def test_each_sum_over_rows_is_one_launch() -> None:
    """Of 3,000 rows, which are split over blocks; no two steps share their counters."""
    made, _ = built(Normed(), "train", "bf16", 3000, 8)
    steps = Counter(step.operation for step in made.plan.steps)
    assert steps["reduce"] == 2, "two biases"
    assert steps["layer_norm_backward"] == 2, "x, and both vectors at once"
    written = [operand.buffer for step in made.plan.steps for operand in step.writes]
    counters = [index for index in written if made.plan.buffers[index].place == ARRIVALS]
    assert len(counters) == 3 == len(set(counters))


@pytest.mark.slow
def test_sums_in_parts_are_where_their_plan_says() -> None:
    """And the counters are zero after the iteration."""
    torch.manual_seed(0)
    graph = lowered(Normed(), "train", (3000, 8))
    tensors = {item.value.name: drawn(item.value) for item in graph.inputs}
    follow(graph, cast("Engines", AskedEngines()), tensors)
