"""The gradient of softmax, which reads its operands in the types in which they were made."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from golow.levels.direct.cudnn.operators.softmax import backward_kernel
from golow.levels.direct.cudnn.planning import build_plan
from golow.levels.direct.cudnn.problems.precision import TYPES
from support.direct.cuda_host import run
from support.direct.cudnn_plans import AskedEngines, assert_sound, lowered
from support.direct.kernel_compilation import assert_compile
from support.direct.kernel_launches import torch_type
from support.examples import examples

if TYPE_CHECKING:
    from golow.levels.direct.cudnn.engines.engines import Engines

FLOATS = ["float32", "float16", "bfloat16"]
EPSILON = {"float32": 2**-23, "float16": 2**-10, "bfloat16": 2**-7}


# Few lengths, since each is compiled: odd ones, vectors, several of a thread, too many to hold.
LENGTHS = st.sampled_from([1, 49, 64, 1000, 2049])


@pytest.mark.slow
@examples(24)
@given(
    rows=st.integers(1, 9),
    columns=LENGTHS,
    types=st.tuples(*[st.sampled_from(FLOATS)] * 3),
    log=st.booleans(),
    seed=st.integers(0, 99),
)
def test_against_float64(
    rows: int, columns: int, types: tuple[str, str, str], log: bool, seed: int
) -> None:
    torch.manual_seed(seed)
    x = 3 * torch.randn(rows, columns, dtype=torch.float64)
    y = (x.log_softmax(1) if log else x.softmax(1)).to(torch_type(types[1]))
    gradient = torch.randn(rows, columns).to(torch_type(types[0]))
    result = torch.zeros(rows, columns, dtype=torch_type(types[2]))
    kernel = backward_kernel(types, rows, columns, log)
    run(kernel, [each.view(torch.uint8).numpy() for each in (gradient, y, result)])
    g, exact = gradient.double(), y.double()
    wanted = g - exact.exp() * g.sum(1, True) if log else exact * (g - (g * exact).sum(1, True))
    scale = g.abs().sum(1, True) + 1 if log else (g * exact).abs().sum(1, True) + g.abs() * exact
    limit = EPSILON[types[2]] * wanted.abs() + 2**-19 * scale + 2**-24
    assert ((result.double() - wanted).abs() <= limit).all()


def test_they_compile_for_a_gpu() -> None:
    half = ("bfloat16", "float32", "bfloat16")
    assert_compile([backward_kernel(half, 100, columns, False) for columns in (49, 197, 4096)])


class Scores(nn.Module):
    """Attention that is written out, with a bias, so that no kernel of a library computes it."""

    def __init__(self) -> None:
        super().__init__()
        self.inner, self.bias = nn.Linear(16, 48), nn.Parameter(torch.randn(9, 9))
        self.last = nn.Linear(16, 2)

    def forward(self, x: Tensor) -> Tensor:
        query, key, value = self.inner(x).chunk(3, -1)
        weights = (query @ key.transpose(1, 2) + self.bias).softmax(-1)
        return self.last((weights @ value).mean(1))


@pytest.mark.slow
def test_neither_scores_nor_their_gradient_are_converted() -> None:
    """Softmax is computed in float32 and rounded once, for both products and for its gradient."""
    made = build_plan(
        lowered(Scores(), "train", (3, 9, 16)), cast("Engines", AskedEngines()), TYPES["bf16"], 1
    )
    assert_sound(made)
    [backward] = [
        step
        for step in made.plan.steps
        if step.operation == "softmax_backward" and step.reads[0].shape == (3, 9, 9)
    ]
    assert [operand.layout for operand in backward.reads] == ["bfloat16", "bfloat16"]
    copied = [step.reads[0].shape for step in made.plan.steps if step.operation == "copy"]
    assert (3, 9, 9) not in copied
