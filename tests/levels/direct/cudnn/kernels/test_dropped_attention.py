"""Flash attention with dropout, in both directions: values on this processor and on a GPU against
float64; and the mask that dropout draws alone."""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import product
from typing import Any

import msgspec
import numpy as np
import pytest
import torch
from torch import Tensor

from golow.levels.direct.cudnn.problems.products import AttentionProblem
from golow.levels.direct.cudnn.shared_kernels import Kernel, dropout, flash_attention
from golow.lower.operators.attention import Attention, AttentionBackward
from support.direct.cuda_host import run as run_here
from support.direct.flash_attention_cases import (
    NOTHING,
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

DROPPED = {
    "plain": Shape(2, 2, 2, 40, 40, 32, 32),
    "odd": Shape(2, 2, 2, 19, 37, 24, 40),
    "causal": Shape(2, 2, 2, 35, 35, 16, 16, causal=True),
    "masked": Shape(2, 2, 2, 20, 70, 64, 64, added="BS"),
}
TYPES = ("bfloat16", "float16", "float32")
LIMITS = {"bfloat16": 0.01, "float16": 0.004, "float32": 0.004}
CHANCE = 0.25


def dropped(kind: str, dtype: str) -> tuple[AttentionProblem, dict[str, Tensor]]:
    """A forward problem in training, and operands that its type holds."""
    shape = DROPPED[kind]
    made = {name: tensor.to(torch_type(dtype)) for name, tensor in operands(shape).items()}
    problem = problem_of(shape, training=True)
    changed: dict[str, Any] = {"dtype": dtype, "kept": True}
    if shape.added:
        made["added"] = made["added"] > -1
        changed |= {"added": placed(made["added"]), "added_dtype": "bool"}
    generator = torch.Generator().manual_seed(9)
    size = (shape.images, shape.heads, shape.rows, shape.keys)
    made["kept"] = torch.rand(size, generator=generator) >= CHANCE
    made["probability"] = torch.tensor([CHANCE])
    return msgspec.structs.replace(problem, **changed), made


def meant(problem: AttentionProblem, made: dict[str, Tensor]) -> dict[str, Tensor]:
    """By the operators' meaning, in float64."""
    read = {name: made[name].double() for name in ("query", "key", "value")}
    how = {
        "added": made.get("added"), "causal": problem.causal, "scale": problem.scale,
        "kept": made["kept"], "probability": CHANCE,
    }  # fmt: skip
    output, logarithm = Attention.meaning(**read, **how)
    gradients = AttentionBackward.meaning(
        made["gradient"].double(), **read, output=output, logarithm=logarithm, **how
    )
    found = dict(zip(("query", "key", "value"), gradients, strict=True))
    return found | {"output": output, "logarithm": logarithm}


def assert_near(found: Tensor, wanted: Tensor, limit: float) -> None:
    distance = (found.double() - wanted).abs()
    assert float(distance.square().mean().sqrt()) <= limit * float(wanted.square().mean().sqrt())


def read_by(made: dict[str, Tensor]) -> list[Tensor]:
    inputs = [memory(made[name]) for name in ("query", "key", "value")]
    inputs.append(memory(made["added"]) if "added" in made else NOTHING)
    return [*inputs, made["kept"], made["probability"]]


def assert_right(launch: Any, kind: str, dtype: str) -> None:
    problem, made = dropped(kind, dtype)
    wanted, limit = meant(problem, made), LIMITS[dtype]
    inputs = read_by(made)
    logarithm = torch.full(wanted["logarithm"].shape, math.nan)
    output = torch.full_like(memory(made["output"]), math.nan)
    for tiling in flash_attention.tilings(problem)[:2]:
        launch(flash_attention.forward(problem, tiling), inputs, [output, logarithm])
        assert_near(as_heads(output, made["output"]), wanted["output"], limit)
        assert_near(logarithm, wanted["logarithm"], limit)
    backward = msgspec.structs.replace(
        problem, keeps=False, gradient=problem.output, of_query=problem.query,
        of_key=problem.key, of_value=problem.value,
    )  # fmt: skip
    inputs += [output, memory(made["gradient"]), logarithm]
    gradients = [
        torch.full_like(memory(made[name]), math.nan) for name in ("query", "key", "value")
    ]
    delta = torch.full(wanted["logarithm"].shape, math.nan)
    of_query, of_keys = flash_attention.backward(backward)
    launch(of_query, inputs, [*gradients, delta])
    first = gradients[0].clone()
    launch(of_keys, [*inputs, first], gradients[1:], [delta])
    for name, found in zip(("query", "key", "value"), (first, *gradients[1:]), strict=True):
        assert_near(as_heads(found, made[name]), wanted[name], 2 * limit)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "dtype"), [*((kind, "bfloat16") for kind in DROPPED), ("odd", "float32")]
)
def test_output_and_gradients_are_right(kind: str, dtype: str) -> None:
    assert_right(on_host, kind, dtype)


@pytest.mark.slow
def test_a_mask_alone_has_the_draws_of_dropout() -> None:
    control = np.array([(7, 3, 0.3)], dropout.CONTROL)
    for count in (1, 9, 5000):
        x = np.ones(count, np.float32)
        y, mask, alone = np.empty_like(x), np.zeros(count, bool), np.ones(count, bool)
        run_here(dropout.forward_kernel("float32", count, 5), [x, control, y, mask])
        run_here(dropout.mask_kernel(count, 5), [control, alone])
        np.testing.assert_array_equal(mask, alone)
    assert 0.65 < alone.mean() < 0.75


def every_kernel() -> Iterator[Kernel]:
    for dtype, kind in product(TYPES, DROPPED):
        problem, _ = dropped(kind, dtype)
        yield from (
            flash_attention.forward(problem, tiling) for tiling in flash_attention.tilings(problem)
        )
        yield from flash_attention.backward(
            msgspec.structs.replace(problem, gradient=problem.output, of_query=problem.query,
                                    of_key=problem.key, of_value=problem.value)
        )  # fmt: skip
    yield dropout.mask_kernel(9)


def test_every_instantiation_compiles() -> None:
    assert_compile(every_kernel())


@pytest.mark.gpu
@pytest.mark.parametrize("kind", DROPPED)
@pytest.mark.parametrize("dtype", TYPES)
def test_output_and_gradients_are_right_on_a_gpu(gpu: Any, kind: str, dtype: str) -> None:
    def launch(kernel: Kernel, *tensors: Any) -> None:
        run(gpu, kernel, *tensors)

    assert_right(launch, kind, dtype)
