"""Kernels along lines of `cudnn`, on this processor: elements in order, running sums, folds and
places of extremes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from golow.levels.direct.cudnn.shared_kernels import lines
from support.direct.cuda_host import run
from support.direct.kernel_launches import gpu
from support.direct.kernel_launches import run as launch

__all__ = ["gpu"]  # a fixture

TYPES = {"float32": torch.float32, "int64": torch.int64}
LENGTHS = st.one_of(st.integers(1, 70), st.sampled_from([255, 256, 257, 600]))
cases = given(
    count=st.integers(1, 9), length=LENGTHS, dtype=st.sampled_from(list(TYPES)),
    seed=st.integers(0, 2**16), order=st.booleans(),
)  # fmt: skip


def drawn(shape: tuple[int, ...], dtype: str, seed: int) -> Tensor:
    """Few values, so that many are equal."""
    values = torch.randint(-9, 9, shape, generator=torch.Generator().manual_seed(seed))
    return values.to(TYPES[dtype])


@pytest.mark.slow
@settings(deadline=None)  # a kernel is compiled when it is first met
@cases
def test_elements_come_in_order_and_equal_ones_keep_theirs(
    count: int, length: int, dtype: str, seed: int, order: bool
) -> None:
    x = drawn((count, length), dtype, seed)
    if dtype == "float32":
        x[x == 9 - seed % 18] = torch.nan  # PyTorch's largest number
    values, places = np.full_like(x.numpy(), 77), np.full(x.shape, -1)
    run(lines.sort(dtype, count, length, order), [x.numpy(), values, places])
    expected = x.sort(dim=1, descending=order, stable=True)
    np.testing.assert_array_equal(values, expected.values.numpy())
    np.testing.assert_array_equal(places, expected.indices.numpy())


@pytest.mark.slow
@settings(deadline=None)
@cases
def test_running_sums_along_any_axis(
    count: int, length: int, dtype: str, seed: int, order: bool
) -> None:
    inner = count if order else 1
    x = drawn((2, length, inner), dtype, seed)
    y = np.full_like(x.numpy(), 77)
    run(lines.running_sums(dtype, dtype, 2, length, inner), [x.numpy(), y])
    np.testing.assert_array_equal(y, x.cumsum(1).numpy())


def test_a_thread_takes_a_line_where_many_lie_side_by_side() -> None:
    x = drawn((1, 9, lines.MANY), "float32", 0)
    y = np.full_like(x.numpy(), 77)
    kernel = lines.running_sums("float32", "float32", 1, 9, lines.MANY)
    assert kernel.grid[0] < lines.MANY
    run(kernel, [x.numpy(), y])
    np.testing.assert_array_equal(y, x.cumsum(1).numpy())


@pytest.mark.slow
@settings(deadline=None)
@cases
def test_lines_are_folded_and_their_extremes_found(
    count: int, length: int, dtype: str, seed: int, order: bool
) -> None:
    x = drawn((count, length), dtype, seed)
    y, places = np.full_like(x.numpy()[:, 0], 77), np.full(count, -1)
    function = "maximum" if order else "minimum"
    run(lines.fold(dtype, dtype, count, length, function), [x.numpy(), y])
    run(lines.place(dtype, count, length, function), [x.numpy(), places])  # type: ignore[arg-type]
    expected = x.max(1).values if order else x.min(1).values
    first = (x == expected[:, None]).int().argmax(1)
    np.testing.assert_array_equal(y, expected.numpy())
    np.testing.assert_array_equal(places, first.numpy())
    run(lines.fold(dtype, dtype, count, length, "sum"), [x.numpy(), y])
    np.testing.assert_array_equal(y, x.sum(1).numpy())


# ---------------------------------------------------------------- on a GPU


@pytest.mark.gpu
@pytest.mark.parametrize("order", [False, True])
@pytest.mark.parametrize("shape", [(1, 2048), (1024, 4), (3, 70), (2, 9000)])
def test_elements_are_sorted_on_a_gpu(gpu: Any, shape: tuple[int, int], order: bool) -> None:
    x = drawn(shape, "int64", 0)
    values, places = torch.empty_like(x), torch.empty_like(x)
    launch(gpu, lines.sort("int64", *shape, order), [x], [values, places])
    expected = x.sort(dim=1, descending=order, stable=True)
    torch.testing.assert_close(values, expected.values)
    torch.testing.assert_close(places, expected.indices)


@pytest.mark.gpu
@pytest.mark.parametrize("shape", [(1, 4, 1), (2, 3000, 1), (2, 300, 5), (1, 9, 8192)])
def test_running_sums_on_a_gpu(gpu: Any, shape: tuple[int, int, int]) -> None:
    x = drawn(shape, "float32", 0)
    y = torch.empty_like(x)
    launch(gpu, lines.running_sums("float32", "float32", *shape), [x], [y])
    torch.testing.assert_close(y, x.cumsum(1))


@pytest.mark.gpu
@pytest.mark.parametrize("shape", [(1, 1), (5, 70), (3, 257), (2, 5000)])
def test_folds_and_places_on_a_gpu(gpu: Any, shape: tuple[int, int]) -> None:
    x = drawn(shape, "int64", 0)
    y, places = torch.empty_like(x[:, 0]), torch.empty_like(x[:, 0])
    launch(gpu, lines.fold("int64", "int64", *shape, "maximum"), [x], [y])
    launch(gpu, lines.place("int64", *shape, "maximum"), [x], [places])
    torch.testing.assert_close(y, x.max(1).values)
    torch.testing.assert_close(places, (x == y[:, None]).int().argmax(1))
