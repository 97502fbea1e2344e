"""The gradient of rows taken by their indices: its kernels against float64."""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from cuda_host import run
from golow.levels.vendor.cudnn.operators.take import (
    CHUNK,
    Rows,
    join_kernel,
    order_kernel,
    sum_kernel,
)
from golow.lower.operators.take import TakeBackward
from kernel_compilation import assert_compile

FOLDER = Path(tempfile.mkdtemp(prefix="golow-take-backward-"))
TYPES = {"int64": np.int64, "int32": np.int32}


def added(
    gradient: np.ndarray, index: np.ndarray, size: int, skipped: int
) -> tuple[np.ndarray, np.ndarray]:
    """The result and the order of places, by the kernels."""
    outer, count, inner = gradient.shape
    rows, dtype = Rows(count, outer, inner, size, skipped), str(index.dtype)
    order = np.full(count, -1, np.int32)
    run(order_kernel(dtype, count), [index, order], FOLDER)
    result = np.zeros((outer, size, inner), np.float32)
    partial = np.full(rows.partial, np.nan, np.float32)
    run(sum_kernel("float32", dtype, rows), [gradient, index, order, result, partial], FOLDER)
    if rows.chunks > 1:
        run(join_kernel(dtype, rows), [index, order, partial, result], FOLDER)
    return result, order


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_rows_against_float64(data: st.DataObject) -> None:
    """Rows that no index names, that one names, and that all name; several chunks of one row."""
    size, outer = data.draw(st.integers(1, 9)), data.draw(st.integers(1, 2))
    count, inner = data.draw(st.integers(1, 5 * CHUNK)), data.draw(st.sampled_from([1, 3, 33, 200]))
    named = data.draw(st.lists(st.integers(0, size - 1), min_size=1, max_size=3))
    skipped = data.draw(st.sampled_from([-1, 0, size - 1]))
    generator = np.random.default_rng(data.draw(st.integers(0, 99)))
    index = generator.choice(named, count).astype(TYPES[data.draw(st.sampled_from(sorted(TYPES)))])
    gradient = generator.standard_normal((outer, count, inner)).astype(np.float32)
    found, order = added(gradient, index, size, skipped)
    np.testing.assert_array_equal(order, np.argsort(index, kind="stable"))
    wanted = TakeBackward.meaning(
        torch.from_numpy(gradient).double(), torch.from_numpy(index.astype(np.int64)),
        axis=1, size=size, skipped=skipped,
    )  # fmt: skip
    np.testing.assert_allclose(found, wanted.numpy(), rtol=0, atol=2e-5)


def test_again_it_gives_the_same_bits() -> None:
    generator = np.random.default_rng(0)
    index = generator.integers(0, 3, 7 * CHUNK + 5)
    gradient = generator.standard_normal((1, len(index), 40)).astype(np.float32)
    first, second = (added(gradient, index, 3, -1)[0] for _ in range(2))
    np.testing.assert_array_equal(first, second)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
def test_every_type_compiles(dtype: str) -> None:
    rows = Rows(200, 1, 40, 3)
    assert_compile(
        kernel
        for index in TYPES
        for kernel in (
            order_kernel(index, rows.places),
            sum_kernel(dtype, index, rows),
            join_kernel(index, rows),
        )
    )


def test_one_row_of_more_chunks_than_a_block_has_threads() -> None:
    index = np.repeat(np.array([1, 0, 2]), (3, 40 * CHUNK, 70))
    gradient = np.ones((1, len(index), 2), np.float32)
    found, _ = added(gradient, index, 4, -1)
    np.testing.assert_array_equal(found[0], np.bincount(index, minlength=4)[:, None].repeat(2, 1))
