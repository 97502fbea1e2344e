"""The kernels that read an input's current batch, and casts, run on this processor."""

from __future__ import annotations

import numpy as np
import pytest

from golow.levels.direct.cudnn.problems.layouts import NUMPY_TYPES
from golow.levels.direct.cudnn.shared_kernels import cast, fetch_inputs
from support.direct.cuda_host import run

POSITION = np.array([2], np.int32)


def drawn(*shape: int, dtype: str = "float32") -> np.ndarray:
    numbers = np.random.default_rng(len(shape)).standard_normal(shape) * 9
    return numbers.astype(np.float32).astype(NUMPY_TYPES[dtype])


@pytest.mark.parametrize(
    ("shape", "kernel"),
    [
        ((2, 3, 5, 7, 4), "fetch_narrow"),
        ((3, 8, 4, 4, 8), "fetch_narrow"),
        ((1, 5, 40, 40, 6), "fetch_narrow"),
        ((2, 33, 6, 7, 40), "fetch_tiled"),
        ((2, 10, 1, 1, 16), "fetch_tiled"),
        ((4, 12, 1, 1, 12), "fetch_rows"),
    ],
)
@pytest.mark.parametrize(
    ("source", "dtype"), [("float32", "float32"), ("float32", "bfloat16"), ("float16", "float16")]
)
def test_the_current_batch_of_images(
    source: str, dtype: str, shape: tuple[int, int, int, int, int], kernel: str
) -> None:
    """The padding is zero."""
    n, c, h, w, padded = shape
    batches, made = drawn(3, n, c, h, w, dtype=source), np.full((n, h, w, padded), np.nan)
    made = made.astype(NUMPY_TYPES[dtype])
    found = fetch_inputs.fetch_image(source, dtype, *shape)
    assert found.expression.startswith(kernel)
    run(found, [batches, POSITION, made])
    wanted = np.zeros_like(made)
    wanted[..., :c] = np.moveaxis(batches[2], 1, -1)
    np.testing.assert_array_equal(made, wanted)


@pytest.mark.parametrize("count", [1, 8, 1000])
@pytest.mark.parametrize(
    ("source", "dtype"), [("float32", "bfloat16"), ("int64", "int64"), ("uint8", "float16")]
)
def test_the_current_batch_of_rows_and_casts(source: str, dtype: str, count: int) -> None:
    batches = np.abs(drawn(4, count)).astype(NUMPY_TYPES[source])
    for kernel, given in (
        (fetch_inputs.fetch_rows(source, dtype, count), [batches, POSITION]),
        (cast.cast(source, dtype, count), [batches[2].copy()]),
    ):
        made = np.zeros(count, NUMPY_TYPES[dtype])
        run(kernel, [*given, made])
        np.testing.assert_array_equal(made, batches[2].astype(NUMPY_TYPES[dtype]))
