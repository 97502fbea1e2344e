"""Attention over a cache, and rows that are written into it: compiled for GPUs, and run on this
processor against float64."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from ml_dtypes import bfloat16

from golow.levels.direct.cudnn.operators.cache_update import cache_rows
from golow.levels.direct.cudnn.problems.products import Placed
from golow.levels.direct.cudnn.shared_kernels.cached_attention import cached_attention
from golow.lower.operators.cache_update import CacheUpdate
from golow.lower.operators.cached_attention import CachedAttention
from support.direct.cuda_host import run, run_sums
from support.direct.kernel_compilation import assert_compile
from support.direct.kernel_launches import gpu, torch_type
from support.direct.kernel_launches import run as launch
from support.examples import examples

__all__ = ["gpu"]  # a fixture
STALE = 7e30  # of a row that was not written: any weight of it shows
FLOATS = ("float32", "float32")
HALVES = ("bfloat16", "bfloat16")


def aligned(array: np.ndarray) -> np.ndarray:
    """The same from a multiple of 256 bytes on, as on a GPU."""
    memory = np.empty(array.nbytes + 256, np.uint8)
    start = -memory.ctypes.data % 256
    found = memory[start : start + array.nbytes].view(array.dtype).reshape(array.shape)
    found[...] = array
    return found


def placed(array: np.ndarray) -> Placed:
    return Placed(array.shape, tuple(step // array.itemsize for step in array.strides))


@st.composite
def cached(draw: st.DrawFn) -> tuple[list[np.ndarray], int, int]:
    """Query, key and value caches, a position and a window; rows that do not exist, or are behind
    the window of all rows, are stale."""
    images, groups, sharing = (draw(st.integers(1, 2)) for _ in range(3))
    rows, longest = draw(st.sampled_from([1, 1, 3, 9])), draw(st.sampled_from([9, 70, 200, 330]))
    inner, width = (draw(st.sampled_from([5, 8, 32, 36, 64, 128])) for _ in range(2))
    position = draw(st.integers(0, longest - rows))
    random = np.random.default_rng(draw(st.integers(0, 2**16)))
    shapes = (
        (images, groups * sharing, rows, inner),
        (images, groups, longest, inner),
        (images, groups, longest, width),
    )
    arrays = [aligned(random.standard_normal(shape).astype(np.float32)) for shape in shapes]
    window = draw(st.sampled_from([0, 0, 1, 5, 64, 100]))
    for cache in arrays[1:]:
        cache[:, :, position + rows :] = STALE
        cache[:, :, : max(position + 1 - window, 0) if window else 0] = STALE
    return arrays, position, window


def attend(
    arrays: list[np.ndarray], position: int, dtypes: tuple[str, str], window: int = 0
) -> np.ndarray:
    query, _, value = arrays
    output = aligned(np.zeros((*query.shape[:3], value.shape[3]), query.dtype))
    places = [placed(array) for array in (*arrays, output)]
    at = aligned(np.array(position))
    run_sums(cached_attention(places, dtypes, 0.3, window), [*arrays, at], [output])
    return output


def right(arrays: list[np.ndarray], position: int, window: int = 0) -> np.ndarray:
    double = [torch.from_numpy(array.astype(np.float64)) for array in arrays]
    for cache in double[1:]:
        cache[:, :, position + arrays[0].shape[2] :] = 0
        cache[:, :, : max(position + 1 - window, 0) if window else 0] = 0
    at = torch.tensor(position)
    expected: np.ndarray = CachedAttention.meaning(*double, at, 0.3, window).numpy()
    return expected


@pytest.mark.slow
@examples(40)
@given(drawn=cached())
def test_attention_over_what_exists_is_right(drawn: tuple[list[np.ndarray], int, int]) -> None:
    arrays, position, window = drawn
    found = attend(arrays, position, FLOATS, window)
    np.testing.assert_allclose(found, right(arrays, position, window), rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize("position", [0, 40, 131])
def test_of_half_precision_too(position: int) -> None:
    random = np.random.default_rng(0)
    shapes = (1, 4, 1, 32), (1, 2, 132, 32), (1, 2, 132, 32)
    arrays = [aligned(random.standard_normal(shape).astype(bfloat16)) for shape in shapes]
    found = attend(arrays, position, HALVES).astype(np.float64)
    np.testing.assert_allclose(found, right(arrays, position), rtol=2**-8, atol=2**-8)


@pytest.mark.parametrize("off", [-1, 1])
def test_a_position_off_by_one_shows(off: int) -> None:
    random = np.random.default_rng(0)
    arrays = [
        aligned(random.standard_normal((1, 2, n, 16)).astype(np.float32)) for n in (1, 99, 99)
    ]
    expected = right(arrays, 20)
    assert np.abs(attend(arrays, 20, FLOATS) - expected).max() < 1e-5
    assert np.abs(attend(arrays, 20 + off, FLOATS) - expected).max() > 1e-2


@examples(40)
@given(
    shape=st.tuples(*(st.integers(1, 3) for _ in range(3)), st.integers(1, 9)),
    axis=st.integers(0, 3),
    more=st.integers(0, 5),
    data=st.data(),
)
def test_rows_are_written_where_they_belong_and_nothing_else(
    shape: tuple[int, ...], axis: int, more: int, data: st.DataObject
) -> None:
    order = data.draw(st.permutations(range(4)))
    position = data.draw(st.integers(0, more))
    random = np.random.default_rng(0)
    rows = random.standard_normal([shape[k] for k in order]).astype(np.float32)
    rows = aligned(rows).transpose(np.argsort(order))
    whole = tuple(n + more * (k == axis) for k, n in enumerate(shape))
    cache = aligned(random.standard_normal(whole).astype(np.float32))
    x, place = torch.from_numpy(cache.copy()), torch.tensor(position)
    expected = CacheUpdate.meaning(x, torch.from_numpy(rows.copy()), place, axis)
    steps = placed(rows).strides, placed(cache).strides
    run(
        cache_rows(FLOATS, shape, *steps, whole[axis], axis),
        [rows, aligned(np.array(position)), cache],
    )
    np.testing.assert_array_equal(cache, expected)


def test_every_kernel_compiles() -> None:
    kernels = []
    for dtypes, inner, width, sharing in (
        (FLOATS, 64, 64, 1), (FLOATS, 128, 128, 8), (FLOATS, 5, 7, 2), (FLOATS, 256, 256, 4),
        (HALVES, 64, 64, 4), (HALVES, 128, 128, 8), (("float32", "bfloat16"), 80, 80, 1),
    ):  # fmt: skip
        shapes = (1, sharing, 1, inner), (1, 1, 999, inner), (1, 1, 999, width)
        places = [Placed(s, strides_of(s)) for s in (*shapes, (1, sharing, 1, width))]
        kernels.append(cached_attention(places, dtypes, 0.1).kernel)
    kernels += [
        cache_rows(dtypes, (1, 2, 3, 4), (24, 12, 4, 1), (48, 24, 4, 1), 6, 2)
        for dtypes in (FLOATS, HALVES, ("bfloat16", "float32"), ("int64", "int64"))
    ]
    assert_compile(kernels)


def strides_of(shape: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(int(np.prod(shape[axis + 1 :])) for axis in range(len(shape)))


def test_what_is_too_wide_is_refused() -> None:
    shapes = (1, 1, 1, 333), (1, 1, 9, 333), (1, 1, 9, 333), (1, 1, 1, 333)
    with pytest.raises(ValueError, match="333 elements"):
        cached_attention([Placed(s, strides_of(s)) for s in shapes], FLOATS, 1.0)


@pytest.mark.gpu
@pytest.mark.parametrize("dtypes", [FLOATS, HALVES])
@pytest.mark.parametrize("position", [0, 63, 500, 1999])
@pytest.mark.parametrize("width", [64, 80, 128])
def test_on_a_gpu(gpu: Any, dtypes: tuple[str, str], position: int, width: int) -> None:
    random = np.random.default_rng(0)
    shapes = (2, 16, 1, width), (2, 4, 2000, width), (2, 4, 2000, width)
    own = np.float32 if dtypes == FLOATS else bfloat16
    arrays = [random.standard_normal(shape).astype(own) for shape in shapes]
    expected = right(arrays, position)
    for cache in arrays[1:]:
        cache[:, :, position + 1 :] = STALE
    output = torch.zeros(2, 16, 1, width, dtype=torch_type(dtypes[0]))
    places = [Placed(s, strides_of(s)) for s in (*shapes, tuple(output.shape))]
    sums = cached_attention(places, dtypes, 0.3)
    given = [torch.from_numpy(a.astype(np.float32)).to(torch_type(dtypes[0])) for a in arrays]
    partial, arrivals = torch.empty(sums.partial), torch.zeros(sums.arrivals, dtype=torch.int32)
    limit = 2e-5 if dtypes == FLOATS else 2**-7
    for _ in range(2):  # the counters are as they were
        launch(gpu, sums.kernel, [*given, torch.tensor(position)], [output], [partial, arrivals])
        np.testing.assert_allclose(output.float().numpy(), expected, rtol=limit, atol=limit)
        assert not arrivals.any()
