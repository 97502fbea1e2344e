"""Flash attention of float32: compilation and what it takes anywhere, values on a GPU against
float64."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from golow.levels.direct.cudnn.engines.golow_attention import own_attention, restore
from golow.levels.direct.cudnn.problems.products import AttentionProblem, Placed
from golow.levels.direct.cudnn.shared_kernels import Kernel, flash_attention
from golow.levels.direct.cudnn.shared_kernels.flash_attention import Tiling
from support.direct.flash_attention_cases import (
    NOTHING,
    SHAPES,
    WIDE,
    Shape,
    as_heads,
    memory,
    operands,
    problem_of,
    right,
)
from support.direct.kernel_compilation import assert_compile
from support.direct.kernel_launches import gpu, run

__all__ = ["gpu"]  # a fixture

# Shares of a result's size: three factors with errors of half a rounding to 11 bits, in sums.
LIMIT = 2.0**-10
GRADIENT_LIMIT = 2.0**-9  # what a weight changes is a difference of two sums


def backward_of(shape: Shape) -> AttentionProblem:
    forward = problem_of(shape, training=True)
    return msgspec.structs.replace(
        forward, keeps=False, gradient=forward.output, of_query=forward.query,
        of_key=forward.key, of_value=forward.value,
    )  # fmt: skip


def every_kernel() -> Iterator[Kernel]:
    kinds = (("BHLS", 8), ("BHLS", 9), (None, 8))
    for width, causal, (added, keys) in product((32, 64, 96, 128), (False, True), kinds):
        shape = Shape(1, 1, 1, 8, keys, width, width, causal, added)
        problem = problem_of(shape, training=False)
        yield from (
            flash_attention.forward(problem, tiling) for tiling in flash_attention.tilings(problem)
        )
        if width <= flash_attention.MOST_WIDTH_BACKWARD:
            yield from flash_attention.backward(backward_of(shape))


# ------------------------------------------------------------ without a GPU


def test_every_instantiation_compiles() -> None:
    assert_compile(every_kernel())


def test_it_compiles_for_the_oldest_gpu_with_tf32() -> None:
    assert_compile(every_kernel(), "sm_80")


def test_timing_has_all_tilings_and_a_plan_without_it_the_likeliest() -> None:
    problem = problem_of(SHAPES["many"], training=False)
    device: Any = SimpleNamespace()
    engines = list(own_attention(problem, device, 6))
    assert [engine.name for engine in engines] == [
        f"flash tf32 {warps}x{keys}" for warps, keys in flash_attention.NARROW_TILINGS
    ]
    assert len(list(own_attention(problem, device, 1))) == 1
    assert restore(problem, device, engines[1].encode()).name == engines[1].name
    backward = list(own_attention(backward_of(SHAPES["many"]), device, 6))
    assert [engine.name for engine in backward] == ["flash tf32 backward"]
    assert backward[0].workspace == 4 * 3 * 4 * 197


@pytest.mark.parametrize("kind", ["wide in training", "wide", "odd", "16 bits in training"])
def test_what_it_does_not_take_has_no_engine(kind: str) -> None:
    width = {"wide in training": 72, "wide": 136, "odd": 12}.get(kind, 16)
    shape = Shape(1, 1, 1, 8, 9, width, width)
    problem = problem_of(shape, training="training" in kind)
    if "16 bits" in kind:
        problem = msgspec.structs.replace(problem, dtype="bfloat16")
    device: Any = SimpleNamespace()
    assert list(own_attention(problem, device, 6)) == []
    with pytest.raises(ValueError, match="attention takes heads of at most 128"):
        flash_attention.forward(problem, Tiling(4, 64))


@given(st.integers(1, 4096), st.integers(1, 64), st.integers(1, 64))
def test_blocks_cover_every_row(rows: int, heads: int, images: int) -> None:
    place = Placed((images, heads, rows, 64), (heads * rows * 64, rows * 64, 64, 1))
    problem = AttentionProblem(
        query=place, key=place, value=place, output=place, dtype="float32", causal=False, scale=1.0
    )
    for tiling in flash_attention.tilings(problem):
        kernel = flash_attention.forward(problem, tiling)
        each = kernel.block[0] // 32 * 16
        assert (kernel.grid[0] - 1) * each < rows <= kernel.grid[0] * each
        assert kernel.grid[1:] == (heads, images)


# ------------------------------------------------------------ on a GPU


def assert_near(
    found: Tensor, wanted: Tensor, what: str, terms: float = 0.0, limit: float = LIMIT
) -> None:
    """As a share of the size of the result, or of its terms; every element within ten of them."""
    assert found.shape == wanted.shape
    size = max(float(wanted.square().mean().sqrt()), terms)
    distance = (found.double() - wanted).abs()
    assert float(distance.square().mean().sqrt()) <= limit * size, what
    assert float(distance.max()) <= 10 * limit * max(size, float(wanted.abs().max())), what


@pytest.mark.gpu
@pytest.mark.parametrize("kind", [*SHAPES, *WIDE])
def test_the_output_is_right(gpu: Any, kind: str) -> None:
    shape = (SHAPES | WIDE)[kind]
    training = kind in SHAPES
    problem = problem_of(shape, training)
    made, wanted = operands(shape), right(shape, problem)
    inputs = [memory(made[name]) for name in ("query", "key", "value")]
    inputs.append(memory(made["added"]) if shape.added else NOTHING)
    output = torch.empty_like(memory(made["output"]))
    logarithms = torch.empty(shape.images, shape.heads, shape.rows) if training else NOTHING
    for tiling in flash_attention.tilings(problem):
        run(gpu, flash_attention.forward(problem, tiling), inputs, [output, logarithms])
        assert_near(as_heads(output, made["output"]), wanted["output"], f"output {tiling}")
        if training:
            assert_near(logarithms, wanted["logarithms"], f"logarithms {tiling}", 1.0)


@pytest.mark.gpu
@pytest.mark.parametrize("kind", SHAPES)
def test_the_gradients_are_right(gpu: Any, kind: str) -> None:
    shape = SHAPES[kind]
    problem = backward_of(shape)
    made, wanted = operands(shape), right(shape, problem)
    inputs = [memory(made[name]) for name in ("query", "key", "value")]
    inputs.append(memory(made["added"]) if shape.added else NOTHING)
    inputs += [memory(wanted["output"].float().transpose(1, 2).contiguous().transpose(1, 2))]
    inputs += [memory(made["gradient"]), wanted["logarithms"].float()]
    gradients = [torch.empty_like(memory(made[name])) for name in ("query", "key", "value")]
    delta = torch.empty(shape.images, shape.heads, shape.rows)
    of_query, of_keys = flash_attention.backward(problem)
    of_key, of_value = (gradient.clone() for gradient in gradients[1:])
    run(gpu, of_query, inputs, [gradients[0], of_key, of_value, delta])
    for_query = gradients[0].clone()
    unused = torch.empty_like(for_query)
    run(gpu, of_keys, [*inputs, unused], gradients[1:], [delta])
    terms = 4.0 if shape.keys == 1 else 0.0  # one key: its weight is one, whatever the scores are
    for name, found in zip(("query", "key", "value"), (for_query, *gradients[1:]), strict=True):
        assert_near(as_heads(found, made[name]), wanted[f"of {name}"], name, terms, GRADIENT_LIMIT)
