"""The gradient of rows taken by their indices: its kernels against float64."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from golow.levels.direct.cudnn.operators.take import (
    CHUNK,
    Rows,
    join_kernel,
    order_kernel,
    sum_kernel,
)
from golow.levels.direct.cudnn.shared_kernels import Kernel
from support.direct.cuda_host import run
from support.direct.kernel_compilation import assert_compile
from support.direct.kernel_launches import ROUNDING, torch_type
from support.examples import examples

TYPES = ("int64", "int32")


def added(y: Tensor, gradient: Tensor, index: Tensor, skipped: int = -1) -> tuple[Tensor, Tensor]:
    """y [outer, size, inner] with gradient [outer, places, inner] added to its rows, and the order
    of the places, by the kernels."""
    (outer, places, inner), size = gradient.shape, y.shape[1]
    rows = Rows(places, outer, inner, size, skipped)
    of_gradient, of_index, of_y = (
        str(t.dtype).removeprefix("torch.") for t in (gradient, index, y)
    )
    result, order = y.clone(), torch.full((places,), -1, dtype=torch.int32)
    partial = torch.full((rows.partial,), torch.nan)

    def launch(kernel: Kernel, *tensors: Tensor) -> None:
        run(kernel, [tensor.view(-1).view(torch.uint8).numpy() for tensor in tensors])

    launch(order_kernel(of_index, places), index, order)
    launch(sum_kernel((of_gradient, of_index, of_y), rows), gradient, index, order, result, partial)
    if rows.chunks > 1:
        launch(join_kernel((of_index, of_y), rows), index, order, partial, result)
    return result, order


FLOATING = st.sampled_from(["float32", "bfloat16", "float16"])


@pytest.mark.slow
@examples(60)
@given(
    outer=st.integers(1, 2), places=st.integers(1, 5 * CHUNK),
    size=st.sampled_from([1, 3, 50]), inner=st.sampled_from([1, 6, 33, 200]),
    dtype=FLOATING, stored=FLOATING, place=st.sampled_from([torch.int64, torch.int32]),
    skipped=st.sampled_from([-1, 0]), seed=st.integers(0, 99),
)  # fmt: skip
def test_rows_against_float64(
    outer: int, places: int, size: int, inner: int, dtype: str, stored: str, place: torch.dtype,
    skipped: int, seed: int,
) -> None:  # fmt: skip
    """Rows that no index names keep their bits; one row may have many chunks, or all of them."""
    torch.manual_seed(seed)
    y = torch.randn(outer, size, inner).to(torch_type(stored))
    gradient = torch.randn(outer, places, inner).to(torch_type(dtype))
    index = torch.randint(size, (places,))
    found, order = added(y, gradient, index.to(place), skipped)
    assert torch.equal(order.long(), index.argsort(stable=True))
    kept = index != skipped
    sums = torch.zeros(outer, size, inner).double()
    sums.index_add_(1, index[kept], gradient[:, kept].double())
    sizes = torch.zeros_like(sums).index_add_(1, index[kept], gradient[:, kept].double().abs())
    limit = ROUNDING[stored] * (y.double() + sums).abs() + 2.0**-20 * (sizes + y.double().abs())
    assert ((found.double() - (y.double() + sums)).abs() <= limit + 1e-7).all()
    untouched = torch.ones(size, dtype=torch.bool)
    untouched[index[kept]] = False
    assert torch.equal(found[:, untouched], y[:, untouched])


def test_again_it_gives_the_same_bits() -> None:
    torch.manual_seed(0)
    index, y = torch.randint(3, (7 * CHUNK + 5,)), torch.zeros(1, 3, 40)
    gradient = torch.randn(1, len(index), 40)
    first, second = (added(y, gradient, index)[0] for _ in range(2))
    assert torch.equal(first, second)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
def test_every_type_compiles(dtype: str) -> None:
    rows = Rows(200, 1, 40, 3)
    assert_compile(
        kernel
        for index in TYPES
        for result in ("float32", dtype)
        for kernel in (
            order_kernel(index, rows.places),
            sum_kernel((dtype, index, result), rows),
            join_kernel((index, result), rows),
        )
    )


@pytest.mark.slow
def test_one_row_of_more_chunks_than_a_block_has_threads() -> None:
    index = torch.tensor([1, 0, 2]).repeat_interleave(torch.tensor([3, 40 * CHUNK, 70]))
    found, _ = added(torch.zeros(1, 4, 2), torch.ones(1, len(index), 2), index)
    assert found[0].tolist() == [[n, n] for n in index.bincount(minlength=4).tolist()]
