"""Layer norm's kernels against float64, and which of them a plan takes."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st
from torch import Tensor

from golow.levels.direct.cudnn.operators import layer_norm as kernels
from golow.levels.direct.cudnn.planning import build_plan
from golow.levels.direct.cudnn.problems.precision import TYPES as PRECISIONS
from golow.levels.direct.cudnn.shared_kernels.rows import blocks_of_sums
from golow.lower.operators.layer_norm import LayerNorm, LayerNormBackward
from golow.lower.operators.quantize import E4M3
from support.direct.cuda_host import run, run_sums
from support.direct.cuda_on_cpu import follow
from support.direct.cudnn_plans import AskedEngines, lowered
from support.direct.kernel_compilation import assert_compile
from support.direct.kernel_launches import ROUNDING, torch_type
from support.direct.norm_cases import Normed, empty, seen
from support.examples import examples
from support.graphs.drawn_values import drawn

if TYPE_CHECKING:
    from golow.levels.direct.cudnn.engines.engines import Engines

# Few lengths, since each is compiled: odd ones, a vector, several of a thread, too many to hold.
LENGTHS = st.sampled_from([1, 6, 32, 200, 2056])
TYPES = st.sampled_from(["float32", "bfloat16", "float16"])


def close(found: Tensor, expected: Tensor) -> None:
    name = str(found.dtype).removeprefix("torch.")
    limit = 8 * ROUNDING[name]
    torch.testing.assert_close(found.double(), expected, rtol=limit, atol=limit)


TYPES_BACK = ("bfloat16", "float32", "float32", "bfloat16")
"""Of the gradient, x, what is added, and the result."""


def exact(tensor: Tensor | None) -> Tensor | None:
    return None if tensor is None else tensor.double()


@pytest.mark.slow
@examples(16)
@given(
    rows=st.integers(1, 40), columns=LENGTHS, dtype=TYPES, weighted=st.booleans(),
    blocks=st.sampled_from([0, 1, 3]), adds=st.booleans(), seed=st.integers(0, 99),
)  # fmt: skip
def test_rows_against_float64(
    rows: int, columns: int, dtype: str, weighted: bool, blocks: int, adds: bool, seed: int
) -> None:
    """blocks: those that leave sums of weight's and bias's gradients, too. adds: another gradient
    to that of x."""
    assume(not blocks or columns < 2056)
    torch.manual_seed(seed)
    x, gradient = (torch.randn(rows, columns).to(torch_type(dtype)) for _ in range(2))
    weight, bias = (torch.rand(columns) + 0.5 if weighted else None for _ in range(2))
    y, mean, deviation = empty(rows, columns, dtype=dtype), empty(rows), empty(rows)
    forward = kernels.forward_kernel(dtype, dtype, rows, columns, 1e-2)
    run(forward, seen(x, weight, bias, None, y, mean, deviation, None))
    expected = LayerNorm.meaning(x.double(), exact(weight), exact(bias), 1, 1e-2)
    for found, wanted in zip((y, mean, deviation), expected, strict=True):
        close(found, wanted.reshape(found.shape))
    of_x, parts = empty(rows, columns, dtype=dtype), empty(2, blocks, columns)
    backward = kernels.backward_kernel((dtype,) * 4, rows, columns, blocks)
    results = [of_x, parts] if blocks else [of_x]
    added = torch.randn(rows, columns).to(torch_type(dtype)) if adds else None
    run(backward, seen(gradient, x, mean, deviation, weight, added, *results))
    kept = (item.double()[:, None] for item in (mean, deviation))
    ones = torch.ones(columns).double() if weight is None else weight.double()
    given = (gradient.double(), x.double(), *kept, ones, ones, 1, exact(added))
    expected = LayerNormBackward.meaning(*given)
    close(of_x, expected[0])
    if blocks:
        vectors = empty(columns), empty(columns)
        run_sums(kernels.parts_kernel(blocks, columns), seen(parts), seen(*vectors))
        for found, wanted in zip(vectors, expected[1:], strict=True):
            torch.testing.assert_close(found.double(), wanted, rtol=1e-5, atol=1e-5)


@pytest.mark.slow
@examples(24)
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
    run_sums(sums, seen(gradient, x, mean, deviation), seen(of_weight, of_bias))
    g, n = gradient.double(), (x.double() - mean[:, None]) * deviation[:, None]
    for found, terms in ((of_weight, g * n), (of_bias, g)):
        if found is not None:
            limit = 1e-6 * rows
            torch.testing.assert_close(found.double(), terms.sum(0), rtol=1e-5, atol=limit)


@pytest.mark.slow
def test_many_rows_are_read_once() -> None:
    """The blocks that compute the gradient of x leave sums for both vectors, which are where the
    plan says in the end."""
    torch.manual_seed(0)
    rows = 132 * 16 * 4
    graph = lowered(Normed(), "train", (rows, 8))
    made = build_plan(graph, cast("Engines", AskedEngines()), PRECISIONS["default"], 1)
    steps = [s.implementation for s in made.plan.steps if s.operation == "layer_norm_backward"]
    assert [step.partition("<")[0] for step in steps] == [
        "layer_norm_backward_summed", "layer_norm_parts"
    ]  # fmt: skip
    tensors = {item.value.name: drawn(item.value) for item in graph.inputs}
    follow(graph, cast("Engines", AskedEngines()), tensors)


@pytest.mark.parametrize(
    ("rows", "columns", "blocks"),
    [(1024, 768, 0), (12608, 768, 396), (2112, 768, 132), (2111, 768, 0), (12608, 1280, 0)],
)
def test_which_rows_are_read_once(rows: int, columns: int, blocks: int) -> None:
    """Many, whose sums a thread's registers hold."""
    assert blocks_of_sums(rows, columns, "bfloat16", "bfloat16") == blocks


def test_kernels_compile() -> None:
    for columns in (6, 256, 4096):
        found = [
            kernels.forward_kernel("bfloat16", "bfloat16", 5, columns, 1e-5),
            kernels.forward_kernel("bfloat16", "bfloat16", 5, columns, 1e-5, E4M3),
            kernels.backward_kernel(TYPES_BACK, 5, columns),
            kernels.weights_kernel("bfloat16", "bfloat16", 5000, columns).kernel,
            kernels.parts_kernel(396, columns).kernel,
        ]
        if columns < 4096:
            found.append(kernels.backward_kernel(TYPES_BACK, 5000, columns, blocks=9))
        for architecture in ("sm_75", "sm_90"):
            assert_compile(found, architecture)
