"""Layer norm's kernels against float64."""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from cuda_host import run, run_sums
from golow.levels.vendor.cudnn.operators import layer_norm as kernels
from golow.lower.operators.layer_norm import LayerNorm, LayerNormBackward
from kernel_compilation import assert_compile
from kernel_launches import ROUNDING, torch_type

FOLDER = Path(tempfile.mkdtemp(prefix="golow-layer-norm-"))
# Few lengths, since each is compiled: odd ones, a vector, several of a thread, too many to hold.
LENGTHS = st.sampled_from([1, 6, 32, 200, 2056])
TYPES = st.sampled_from(["float32", "bfloat16", "float16"])


def seen(*tensors: Tensor | None) -> list[np.ndarray | None]:
    return [None if t is None else t.view(torch.uint8).numpy() for t in tensors]


def empty(*shape: int, dtype: str = "float32") -> Tensor:
    return torch.full(shape, torch.nan, dtype=torch_type(dtype))


def close(found: Tensor, expected: Tensor) -> None:
    name = str(found.dtype).removeprefix("torch.")
    limit = 8 * ROUNDING[name]
    torch.testing.assert_close(found.double(), expected, rtol=limit, atol=limit)


def exact(tensor: Tensor | None) -> Tensor | None:
    return None if tensor is None else tensor.double()


@settings(max_examples=16, deadline=None)
@given(
    rows=st.integers(1, 9), columns=LENGTHS, dtype=TYPES, weighted=st.booleans(),
    seed=st.integers(0, 99),
)  # fmt: skip
def test_rows_against_float64(
    rows: int, columns: int, dtype: str, weighted: bool, seed: int
) -> None:
    torch.manual_seed(seed)
    x, gradient = (torch.randn(rows, columns).to(torch_type(dtype)) for _ in range(2))
    weight, bias = (torch.rand(columns) + 0.5 if weighted else None for _ in range(2))
    y, mean, deviation = empty(rows, columns, dtype=dtype), empty(rows), empty(rows)
    forward = kernels.forward_kernel(dtype, dtype, rows, columns, 1e-2)
    run(forward, seen(x, weight, bias, y, mean, deviation), FOLDER)
    expected = LayerNorm.meaning(x.double(), exact(weight), exact(bias), 1, 1e-2)
    for found, wanted in zip((y, mean, deviation), expected, strict=True):
        close(found, wanted.reshape(found.shape))
    of_x = empty(rows, columns, dtype=dtype)
    backward = kernels.backward_kernel(dtype, dtype, dtype, rows, columns)
    run(backward, seen(gradient, x, mean, deviation, weight, of_x), FOLDER)
    kept = (item.double()[:, None] for item in (mean, deviation))
    close(of_x, LayerNormBackward.meaning(
        gradient.double(), x.double(), *kept, exact(weight), exact(bias), 1
    )[0])  # fmt: skip


@settings(max_examples=24, deadline=None)
@given(
    rows=st.sampled_from([1, 5, 130, 700, 1500]), columns=LENGTHS, dtype=TYPES, source=TYPES,
    wanted=st.sampled_from([(True, True), (True, False), (False, True)]), seed=st.integers(0, 99),
)  # fmt: skip
def test_vectors_against_float64(
    rows: int, columns: int, dtype: str, source: str, wanted: tuple[bool, bool], seed: int
) -> None:
    """Over rows that one block takes, and that several do."""
    torch.manual_seed(seed)
    gradient = torch.randn(rows, columns).to(torch_type(dtype))
    x = torch.randn(rows, columns).to(torch_type(source))
    mean, deviation = torch.randn(rows), torch.rand(rows) + 0.5
    of_weight, of_bias = (empty(columns) if one else None for one in wanted)
    sums = kernels.weights_kernel(dtype, source, rows, columns)
    run_sums(sums, seen(gradient, x, mean, deviation), seen(of_weight, of_bias), FOLDER)
    g, n = gradient.double(), (x.double() - mean[:, None]) * deviation[:, None]
    for found, terms in ((of_weight, g * n), (of_bias, g)):
        if found is not None:
            limit = 1e-6 * rows
            torch.testing.assert_close(found.double(), terms.sum(0), rtol=1e-5, atol=limit)


def test_kernels_compile() -> None:
    for columns in (6, 256, 4096):
        found = [
            kernels.forward_kernel("bfloat16", "bfloat16", 5, columns, 1e-5),
            kernels.backward_kernel("bfloat16", "float32", "bfloat16", 5, columns),
            kernels.weights_kernel("bfloat16", "bfloat16", 5000, columns).kernel,
        ]
        for architecture in ("sm_75", "sm_90"):
            assert_compile(found, architecture)
