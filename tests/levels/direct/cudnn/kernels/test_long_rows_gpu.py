"""Language models with long odd vocabularies on a GPU: the loss's kernels and the sums of rows at
their real sizes, and whole training steps."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn import functional

from golow.levels.direct.cudnn.level import probe
from golow.levels.direct.cudnn.operators import cross_entropy, take
from golow.records.workload import Precision
from support.direct.kernel_launches import assert_close, drawn, gpu, run, torch_type
from support.models.long_rows import HEADS, TOKENS

if not probe().available:
    pytest.skip(probe().missing, allow_module_level=True)

from support.direct.cudnn_in_process import OnGpu, compute, lowered
from support.direct.in_process import assert_right

__all__ = ["gpu"]  # a fixture

pytestmark = pytest.mark.gpu

ROWS, COLUMNS, PITCH = 64, 50257, 50264


def with_gaps(x: Tensor) -> Tensor:
    held = torch.full((ROWS, PITCH), torch.nan, dtype=x.dtype)
    held[:, :COLUMNS] = x
    return held


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
def test_cross_entropy_of_a_large_vocabulary(gpu: Any, dtype: str) -> None:
    x = (drawn(ROWS, COLUMNS) * 4).to(torch_type(dtype))
    target = torch.randint(COLUMNS, (ROWS,), generator=torch.Generator().manual_seed(0))
    target[::7] = -100
    largest, logarithm, loss, total = (torch.empty(n) for n in (ROWS, ROWS, 1, 1))
    held = with_gaps(x)
    kernel = cross_entropy.rows_kernel(dtype, ROWS, COLUMNS, PITCH)
    run(gpu, kernel, [held], [largest, logarithm])
    kernel = cross_entropy.loss_kernel(dtype, ROWS, COLUMNS, PITCH, mean=True)
    run(gpu, kernel, [held, target, largest, logarithm], [loss, total])
    exact = x.double().requires_grad_()
    expected = functional.cross_entropy(exact, target)
    assert_close(loss, expected.reshape(1), slack=16)
    assert total.item() == (target != -100).sum()
    (wanted,) = torch.autograd.grad(expected * 1000, exact)
    dx = torch.empty(ROWS, PITCH, dtype=torch_type(dtype))
    kernel = cross_entropy.backward_kernel((dtype, dtype), ROWS, COLUMNS, (PITCH, PITCH), mean=True)
    share = torch.tensor([1000.0])
    run(gpu, kernel, [share, held, target, largest, logarithm, total], [dx])
    assert_close(dx[:, :COLUMNS], wanted, slack=64)
    assert dx[:, COLUMNS:].isnan().all()


def test_rows_are_added_alike_in_every_run(gpu: Any) -> None:
    """Tokens of which some occur often; into float32, so that every bit counts."""
    generator = torch.Generator().manual_seed(0)
    index = torch.randint(3000, (1024,), generator=generator)
    index[::3] = 17
    gradient = drawn(1024, 768, dtype="bfloat16")
    rows, types = take.Rows(places=1024, outer=1, inner=768, size=3000), ("int64", "float32")
    found = []
    for _ in range(3):
        order, place = torch.empty(1024, dtype=torch.int32), torch.zeros(3000, 768)
        partial = torch.empty(rows.partial)
        run(gpu, take.order_kernel("int64", 1024), [index], [order])
        # What is read and written is given as an input, whose content the launch brings back.
        adding = take.sum_kernel(("bfloat16", *types), rows)
        run(gpu, adding, [gradient, index, order, place, partial], [])
        run(gpu, take.join_kernel(types, rows), [index, order, partial, place], [])
        found.append(place)
    exact = torch.zeros(3000, 768).double().index_add_(0, index, gradient.double())
    assert_close(found[0], exact, slack=64)
    assert all(torch.equal(found[0], other) for other in found[1:])


LIMITS: dict[Precision, float] = {"default": 2.0**-8, "tf32": 2.0**-8, "bf16": 2.0**-5,
                                  "fp16": 2.0**-8}  # fmt: skip


@pytest.fixture(scope="module")
def on(tmp_path_factory: pytest.TempPathFactory) -> OnGpu:
    return OnGpu(tmp_path_factory.mktemp("long-rows"))


@pytest.mark.parametrize("name", HEADS)
def test_a_language_model_is_right(on: OnGpu, name: str) -> None:
    torch.manual_seed(0)
    network = lowered(HEADS[name](), TOKENS, "train", loss="token_cross_entropy")
    assert_right(network, compute(network, on))


@pytest.mark.parametrize("precision", LIMITS)
@pytest.mark.parametrize("name", HEADS)
def test_a_language_model_in_another_precision(on: OnGpu, name: str, precision: Precision) -> None:
    torch.manual_seed(0)
    network = lowered(
        HEADS[name](), TOKENS, "train", loss="token_cross_entropy", precision=precision
    )
    wanted, _, _ = network.references
    found = compute(network, on, precision)
    for key, right in wanted.items():
        if key.startswith("1/gradient/"):  # read in the first step alone
            continue
        distance = float(np.linalg.norm(found[key] - right))
        size = float(np.linalg.norm(right)) + 1e-3 * right.size**0.5
        assert distance <= LIMITS[precision] * size, key
