"""Flash attention by masks of truth values, in both directions: values on this processor and on a
GPU against float64. Rows that see nothing are zero and have no gradient."""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import partial
from itertools import product
from typing import Any

import msgspec
import pytest
import torch
from torch import Tensor

from golow.levels.direct.cudnn.problems.products import AttentionProblem
from golow.levels.direct.cudnn.shared_kernels import Kernel, flash_attention
from golow.lower.operators.attention import Attention, AttentionBackward
from support.direct.flash_attention_cases import (
    Shape,
    as_heads,
    memory,
    operands,
    placed,
    problem_of,
)
from support.direct.kernel_compilation import assert_compile
from support.direct.kernel_launches import gpu, on_host, run, torch_type

__all__ = ["gpu"]  # a fixture

MASKED = {
    "padding": Shape(3, 2, 2, 40, 40, 32, 32, added="BS"),
    "odd": Shape(2, 2, 1, 19, 37, 24, 40, added="BHLS"),
    "causal": Shape(2, 2, 2, 35, 35, 16, 16, causal=True, added="BLS"),
    "wide heads": Shape(1, 2, 2, 20, 70, 64, 64, added="LS"),
}
TYPES = ("bfloat16", "float16", "float32")
LIMITS = {"bfloat16": 0.02, "float16": 0.004, "float32": 0.004}


def masked(kind: str, dtype: str, training: bool) -> tuple[AttentionProblem, dict[str, Tensor]]:
    """The problem, and operands that its type holds. Of the first image, a row sees nothing; where
    all rows have one mask, none does."""
    shape = MASKED[kind]
    made = {name: tensor.to(torch_type(dtype)) for name, tensor in operands(shape).items()}
    seen = made["added"] > -1
    seen[0, :, min(3, seen.shape[2] - 1)] = False
    problem = problem_of(shape, training)
    added = {"added": placed(seen), "added_dtype": "bool"}
    return msgspec.structs.replace(problem, dtype=dtype, **added), made | {"added": seen}


def meant(problem: AttentionProblem, made: dict[str, Tensor]) -> dict[str, Tensor]:
    """By the operators' meaning, in float64."""
    read = {name: made[name].double() for name in ("query", "key", "value")}
    how = {"added": made["added"], "causal": problem.causal, "scale": problem.scale}
    output, logarithm = Attention.meaning(**read, **how)
    gradients = AttentionBackward.meaning(
        made["gradient"].double(), **read, output=output, logarithm=logarithm, **how
    )
    names = ("query", "key", "value")
    found = dict(zip(names, gradients, strict=True))
    return found | {"output": output, "logarithm": logarithm}


def assert_near(found: Tensor, wanted: Tensor, limit: float) -> None:
    distance = (found.double() - wanted).abs()
    assert float(distance.square().mean().sqrt()) <= limit * float(wanted.square().mean().sqrt())
    assert float(distance.max()) <= 10 * limit * float(wanted.abs().max())


def assert_forward_is_right(launch: Any, kind: str, dtype: str) -> None:
    problem, made = masked(kind, dtype, training=dtype == "float32")
    wanted = meant(problem, made)
    inputs = [memory(made[name]) for name in ("query", "key", "value", "added")]
    logarithm = torch.full(wanted["logarithm"].shape, math.nan)
    for tiling in flash_attention.tilings(problem)[:2]:
        output = torch.full_like(memory(made["output"]), math.nan)
        outputs = [output, logarithm] if problem.keeps else [output]
        launch(flash_attention.forward(problem, tiling), inputs, outputs)
        assert_near(as_heads(output, made["output"]), wanted["output"], LIMITS[dtype])
        assert not as_heads(output, made["output"])[0, 0, 3].any()
        if problem.keeps:
            assert_near(logarithm, wanted["logarithm"], LIMITS[dtype])


def assert_backward_is_right(launch: Any, kind: str) -> None:
    forward, made = masked(kind, "float32", training=True)
    problem = msgspec.structs.replace(
        forward, keeps=False, gradient=forward.output, of_query=forward.query,
        of_key=forward.key, of_value=forward.value,
    )  # fmt: skip
    wanted = meant(problem, made)
    output = wanted["output"].float().transpose(1, 2).contiguous()
    inputs = [memory(made[name]) for name in ("query", "key", "value", "added")]
    inputs += [output, memory(made["gradient"]), wanted["logarithm"].float()]
    of_query, of_key, of_value = (
        torch.empty_like(memory(made[name])) for name in ("query", "key", "value")
    )
    delta = torch.empty(wanted["logarithm"].shape)
    first, second = flash_attention.backward(problem)
    launch(first, inputs, [of_query, of_key, of_value, delta])
    found = {"query": of_query.clone()}
    launch(second, [*inputs, torch.empty_like(of_query)], [of_key, of_value], [delta])
    found |= {"key": of_key, "value": of_value}
    for name, gradient in found.items():
        assert_near(as_heads(gradient, made[name]), wanted[name], 2 * LIMITS["float32"])


def every_kernel() -> Iterator[Kernel]:
    for kind, dtype in product(MASKED, TYPES):
        problem, _ = masked(kind, dtype, training=False)
        yield flash_attention.forward(problem, flash_attention.tilings(problem)[0])
        if dtype == "float32":
            places = {f"of_{name}": getattr(problem, name) for name in ("query", "key", "value")}
            trained = msgspec.structs.replace(problem, gradient=problem.output, **places)
            yield from flash_attention.backward(trained)


def test_every_instantiation_compiles() -> None:
    assert_compile(every_kernel())


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["bfloat16", "float32"])
@pytest.mark.parametrize("kind", MASKED)
def test_forward_is_right_on_this_processor(kind: str, dtype: str) -> None:
    assert_forward_is_right(on_host, kind, dtype)


@pytest.mark.slow
@pytest.mark.parametrize("kind", MASKED)
def test_backward_is_right_on_this_processor(kind: str) -> None:
    assert_backward_is_right(on_host, kind)


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("kind", MASKED)
def test_forward_is_right(gpu: Any, kind: str, dtype: str) -> None:
    assert_forward_is_right(partial(run, gpu), kind, dtype)


@pytest.mark.gpu
@pytest.mark.parametrize("kind", MASKED)
def test_backward_is_right(gpu: Any, kind: str) -> None:
    assert_backward_is_right(partial(run, gpu), kind)
