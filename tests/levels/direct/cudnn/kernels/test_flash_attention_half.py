"""Flash attention of 16-bit tensors with numbers that are added in float32: values on this
processor and on a GPU against float64."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import cycle, islice, product
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
import torch
from torch import Tensor

from golow.levels.direct.cudnn.engines.golow_attention import own_attention
from golow.levels.direct.cudnn.problems.products import AttentionProblem
from golow.levels.direct.cudnn.shared_kernels import Kernel, flash_attention
from support.direct.flash_attention_cases import (
    NOTHING,
    SHAPES,
    WIDE,
    Shape,
    as_heads,
    memory,
    operands,
    placed,
    problem_of,
    right,
)
from support.direct.kernel_compilation import assert_compile
from support.direct.kernel_launches import ROUNDING, gpu, on_host, run, torch_type

__all__ = ["gpu"]  # a fixture

HALVES = ("bfloat16", "float16")
SMALL = ["one row", "causal of fewer keys", "odd distances", "padding", "grouped", "other widths"]
ALL = SHAPES | WIDE


def half_problem(shape: Shape, dtype: str, added: str = "float32") -> AttentionProblem:
    problem = problem_of(shape, training=False)
    return msgspec.structs.replace(problem, dtype=dtype, added_dtype=added if shape.added else "")


def rounded(shape: Shape, dtype: str) -> dict[str, Tensor]:
    """Operands that 16 bits hold, but for what is added."""
    made = operands(shape)
    return {
        name: tensor if name == "added" else tensor.to(torch_type(dtype))
        for name, tensor in made.items()
    }


def assert_right(launch: Any, kind: str, dtype: str, tilings: Sequence[Any]) -> None:
    shape = ALL[kind]
    problem, made = half_problem(shape, dtype), rounded(shape, dtype)
    wanted = right(shape, problem, made)["output"]
    inputs = [memory(made[name]) for name in ("query", "key", "value")]
    inputs.append(memory(made["added"]) if shape.added else NOTHING)
    for tiling in tilings:
        output = torch.full_like(memory(made["output"]), math.nan)
        launch(flash_attention.forward(problem, tiling), inputs, [output])
        found, size = (
            as_heads(output, made["output"]).double(),
            float(wanted.square().mean().sqrt()),
        )
        distance = (found - wanted).abs()
        limit = 3 * ROUNDING[dtype]
        assert float(distance.square().mean().sqrt()) <= limit * size, tiling
        assert float(distance.max()) <= 10 * limit * max(size, float(wanted.abs().max())), tiling


def every_kernel() -> Iterator[Kernel]:
    """Every tiling with every way of adding; types and causality take turns."""
    kinds = (("BHLS", 8), ("BHLS", 9), (None, 8))
    turns = cycle(product((False, True), HALVES))
    for width, (added, keys) in product((32, 64, 96, 128), kinds):
        for of_added in ("float32", "") if added else ("",):
            causal, dtype = next(turns)
            shape = Shape(1, 1, 1, 8, keys, width, width, causal, added)
            problem = half_problem(shape, dtype, of_added)
            yield from (
                flash_attention.forward(problem, t) for t in flash_attention.tilings(problem)
            )


def test_every_instantiation_compiles() -> None:
    assert_compile(every_kernel())


def test_it_compiles_for_the_oldest_gpu_with_bfloat16() -> None:
    assert_compile(islice(every_kernel(), 4), "sm_80")


@pytest.mark.slow
@pytest.mark.parametrize("kind", SMALL)
def test_it_is_right_on_this_processor(kind: str) -> None:
    narrow = flash_attention.NARROW_HALF_TILINGS
    assert_right(on_host, kind, "bfloat16", narrow[::3])


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["distances", "wider values"])
def test_every_tiling_is_right_on_this_processor(kind: str) -> None:
    problem = half_problem(ALL[kind], "float16")
    assert_right(on_host, kind, "float16", flash_attention.tilings(problem))


@pytest.mark.parametrize("number", [-math.inf, -3.4e38, -1e30])
@pytest.mark.parametrize("of_added", ["float32", "bfloat16"])
def test_a_row_in_which_all_is_hidden_has_equal_weights(number: float, of_added: str) -> None:
    """As by the large number of a network; by minus infinity a network's row is NaN."""
    shape = Shape(1, 1, 1, 20, 40, 16, 16, added="LS")
    made = rounded(shape, "bfloat16")
    made["added"][0, 0, 3] = number
    problem = half_problem(shape, "bfloat16", of_added)
    added = made["added"].to(torch_type(of_added))
    output = torch.empty_like(memory(made["output"]))
    inputs = [memory(made[name]) for name in ("query", "key", "value")]
    for tiling in flash_attention.tilings(problem)[::3]:
        on_host(flash_attention.forward(problem, tiling), [*inputs, added], [output])
        found = as_heads(output, made["output"])[0, 0, 3].float()
        torch.testing.assert_close(found, made["value"][0, 0].float().mean(0), atol=0.01, rtol=0.01)


def test_a_number_that_is_none_is_seen() -> None:
    shape = Shape(1, 1, 1, 20, 40, 16, 16, added="LS")
    made, problem = rounded(shape, "bfloat16"), half_problem(shape, "bfloat16")
    made["added"][0, 0, 3, 5] = math.nan
    output = torch.empty_like(memory(made["output"]))
    inputs = [memory(made[name]) for name in ("query", "key", "value")]
    kernel = flash_attention.forward(problem, flash_attention.tilings(problem)[0])
    on_host(kernel, [*inputs, made["added"]], [output])
    lost = as_heads(output, made["output"])[0, 0].isnan().all(dim=1)
    assert lost.tolist() == [row == 3 for row in range(20)]


def test_it_is_an_engine_where_the_library_has_none() -> None:
    device: Any = SimpleNamespace()
    problem = half_problem(SHAPES["distances"], "bfloat16")
    names = [engine.name for engine in own_attention(problem, device, 6)]
    assert names == ["flash bfloat16 4x64", "flash bfloat16 8x64", "flash bfloat16 4x32",
                     "flash bfloat16 2x32"]  # fmt: skip
    assert placed(operands(SHAPES["distances"])["added"]).extent * 4 == problem.operand_bytes[3]
    training = msgspec.structs.replace(problem, keeps=True)
    assert list(own_attention(training, device, 6)) == []


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize("kind", ALL)
def test_it_is_right(gpu: Any, kind: str, dtype: str) -> None:
    problem = half_problem(ALL[kind], dtype)
    assert_right(partial(run, gpu), kind, dtype, flash_attention.tilings(problem))
