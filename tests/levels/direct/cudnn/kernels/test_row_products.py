"""The product of a few rows by a weight that is read once, on this processor."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from golow.levels.direct.cudnn.operators.row_product import WARPS, Shape, kernel_of, tiling
from golow.levels.direct.cudnn.problems.layouts import NUMPY_TYPES
from golow.lower.ir.graph import Activation, Ref
from golow.lower.operators.row_product import RowProduct
from support.direct.cuda_host import run
from support.direct.kernel_compilation import assert_compile
from support.direct.kernel_launches import gpu
from support.direct.kernel_launches import run as launch
from support.examples import examples

__all__ = ["gpu"]  # a fixture

SILU = Activation(name="silu")
X = Ref(name="x")


def drawn(
    shape: Shape, dtype: str, extras: tuple[bool, bool, bool], activation: Activation | None
) -> tuple[list[torch.Tensor | None], torch.Tensor]:
    """What the kernel reads, None for what is absent, and its result in float64. extras: whether
    there are weights of the norm, a bias and a residual."""
    torch.manual_seed(0)
    kind = getattr(torch, dtype)
    rows = shape.outputs * (2 if shape.gated else 1)
    sizes = {
        "x": (shape.rows, shape.inner), "weight": (rows, shape.inner), "norm": (shape.inner,),
        "bias": (rows,), "residual": (shape.rows, shape.outputs),
    }  # fmt: skip
    there = {"norm": extras[0] and shape.normed, "bias": extras[1], "residual": extras[2]}
    held = {
        name: torch.randn(size).to(torch.float32 if name == "norm" else kind)
        for name, size in sizes.items()
        if there.get(name, True)
    }
    held["weight"] /= shape.inner**0.5
    expected: torch.Tensor = RowProduct.meaning(
        **{name: held[name].double() if name in held else None for name in sizes},  # type: ignore[arg-type]
        epsilon=1e-5 if shape.normed else None,
        activation=activation,
        gated=shape.gated,
    )
    return [held.get(name) for name in sizes], expected


def off(
    shape: Shape, dtype: str, extras: tuple[bool, bool, bool], activation: Activation | None
) -> float:
    """How far the kernel is from PyTorch in float64, over the largest element."""
    given, expected = drawn(shape, dtype, extras, activation)
    result = np.zeros(shape.rows * shape.outputs, NUMPY_TYPES[dtype])
    arrays = [None if item is None else bits(item) for item in given]
    run(kernel_of(dtype, shape, 1e-5, activation), [*arrays, result])
    raw = torch.from_numpy(result.view(np.uint8)).view(getattr(torch, dtype))
    return float(
        (raw.double().reshape(expected.shape) - expected).abs().max() / expected.abs().max()
    )


def bits(tensor: torch.Tensor) -> np.ndarray:
    """Memory of a tensor, aligned as a GPU's."""
    raw = tensor.contiguous().view(torch.uint8).numpy().reshape(-1)
    memory = np.zeros(raw.size + 64, np.uint8)
    start = -memory.ctypes.data % 64
    memory[start : start + raw.size] = raw
    return memory[start : start + raw.size]


NEAR = {"float32": 2e-6, "bfloat16": 8e-3, "float16": 1e-3}


@pytest.mark.parametrize("dtype", NEAR)
@pytest.mark.parametrize(
    "shape",
    [
        Shape(1, 40, 256, normed=True),
        Shape(1, 24, 64, normed=True, gated=True),
        Shape(3, 17, 2088),
        Shape(4, 9, 4096, gated=True),
        Shape(1, 5, 16384, normed=True),
        Shape(1, 8450, 8),
    ],
    ids=str,
)
def test_against_float64(dtype: str, shape: Shape) -> None:
    assert off(shape, dtype, (True, True, not shape.gated), SILU) < NEAR[dtype]


@pytest.mark.slow
@examples(40)
@given(
    st.integers(1, 4), st.integers(1, 40), st.sampled_from([1, 5, 33]),
    st.booleans(), st.booleans(),
    st.tuples(st.booleans(), st.booleans(), st.booleans()), st.sampled_from([None, SILU]),
)  # fmt: skip
def test_any_sizes(
    rows: int, outputs: int, eighths: int, normed: bool, gated: bool,
    extras: tuple[bool, bool, bool], activation: Activation | None,
) -> None:  # fmt: skip
    shape = Shape(rows, outputs, 8 * eighths, normed, gated)
    assert off(shape, "bfloat16", (*extras[:2], extras[2] and not gated), activation) < 1e-2


@pytest.mark.parametrize("inner", [8, 96, 2048, 8192, 14336, 16384])
@pytest.mark.parametrize("gated", [False, True])
def test_every_piece_has_a_lane_and_the_pieces_fit(inner: int, gated: bool) -> None:
    shape = Shape(1, 2048, inner, gated=gated)
    tiles, kernel = tiling(shape, 8), kernel_of("bfloat16", shape)
    assert WARPS % tiles.shares == 0
    assert 8 * 32 * tiles.shares * tiles.pieces >= inner
    assert kernel.shared <= 96 << 10  # two blocks fit into a multiprocessor's memory


def test_sizes_without_a_kernel() -> None:
    with pytest.raises(ValueError, match="5 rows"):
        kernel_of("bfloat16", Shape(5, 8, 64))
    with pytest.raises(ValueError, match="12 elements"):
        kernel_of("bfloat16", Shape(1, 8, 12))
    with pytest.raises(ValueError, match="rows of 16392 elements"):
        kernel_of("float32", Shape(1, 8, 16392))


def test_they_compile() -> None:
    shapes = [
        Shape(1, 3072, 2048, normed=True), Shape(1, 8192, 2048, normed=True, gated=True),
        Shape(1, 2048, 8192), Shape(1, 128256, 2048, normed=True), Shape(4, 4096, 14336),
    ]  # fmt: skip
    assert_compile(kernel_of(dtype, shape, 1e-5) for shape in shapes for dtype in NEAR)


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", NEAR)
@pytest.mark.parametrize(
    "shape",
    [
        Shape(1, 3072, 2048, normed=True), Shape(1, 8192, 2048, normed=True, gated=True),
        Shape(1, 2048, 8192), Shape(1, 40000, 2048, normed=True), Shape(4, 1000, 14336),
        Shape(2, 33, 96, normed=True, gated=True),
    ],
    ids=str,
)  # fmt: skip
def test_on_a_gpu(gpu: Any, dtype: str, shape: Shape) -> None:
    given, expected = drawn(shape, dtype, (True, True, not shape.gated), SILU)
    result = torch.empty(shape.rows, shape.outputs, dtype=getattr(torch, dtype))
    reads = [torch.empty(0) if item is None else item for item in given]
    launch(gpu, kernel_of(dtype, shape, 1e-5, SILU), reads, [result])
    assert float((result.double() - expected).abs().max() / expected.abs().max()) < NEAR[dtype]
