"""Linear layers as convolutions of images of one pixel, and vice versa."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, cast

import pytest
from hypothesis import given
from hypothesis import strategies as some
from torch import Tensor, nn
from torch.nn import functional

from golow.levels.direct.cudnn.engines.one_pixel import as_convolution, as_product
from golow.levels.direct.cudnn.planning import build_plan
from golow.levels.direct.cudnn.problems.gemm import Problem, Strides
from golow.levels.direct.cudnn.problems.precision import TYPES
from golow.levels.direct.cudnn.problems.products import Convolution
from golow.lower.ir.graph import Activation
from golow.records.workload import Mode
from support.direct.cudnn_plans import AskedEngines, TimedEngines, lowered

if TYPE_CHECKING:
    from golow.levels.direct.cudnn.engines.engines import Engines

sizes = some.integers(1, 5000)
truths = some.booleans()
PRODUCT = Problem(m=128, n=768, k=3072, transpose_b=True, alignment=16)


@given(sizes, sizes, sizes, some.sampled_from(["float32", "bfloat16"]), some.tuples(*[truths] * 5))
def test_there_and_back(
    m: int, n: int, k: int, dtype: str, given: tuple[bool, bool, bool, bool, bool]
) -> None:
    bias, residual, relu, frozen, cold = given
    product = replace(
        PRODUCT, m=m, n=n, k=k, dtype=dtype, result=dtype, bias=bias, residual=residual, relu=relu,
        arithmetic="tf32" if dtype == "float32" else "half", frozen=frozen, cold=cold,
    )  # fmt: skip
    made = as_convolution(product)
    assert made is not None and made.pointwise
    assert made.operand_bytes == product.operand_bytes
    assert made.flops == product.flops
    back = as_product(made)
    assert back is not None
    assert replace(back, alignment=product.alignment) == product


@pytest.mark.parametrize(
    "changes",
    [
        {"transpose_b": False},
        {"transpose_a": True},
        {"batch": 2},
        {"factor": 0.5},
        {"d": Strides(row=1024)},
        {"a": Strides(row=4096)},
    ],
)
def test_other_products_are_none(changes: dict[str, object]) -> None:
    assert as_convolution(replace(PRODUCT, **changes)) is None  # type: ignore[arg-type]


def test_an_activation_is_the_convolutions_alone() -> None:
    made = as_convolution(PRODUCT, Activation(name="gelu"))
    assert made is not None and made.activation == Activation(name="gelu")
    assert as_product(made) is None


# ---------------------------------------------------------------- what is known of weights


class Dynamic(nn.Module):
    """A linear layer whose weight is computed from the input."""

    def __init__(self) -> None:
        super().__init__()
        self.make = nn.Linear(8, 64)

    def forward(self, x: Tensor) -> Tensor:
        return functional.linear(x, self.make(x.mean(0)).reshape(8, 8))


def asked(module: nn.Module, mode: Mode, engines: AskedEngines, *shape: int) -> list[object]:
    graph = lowered(module, mode, shape)
    build_plan(graph, cast("Engines", engines), TYPES["bf16"], 4)
    return [item for item in engines.operations if isinstance(item, Convolution | Problem)]


CONVOLUTIONS = nn.Sequential(nn.Conv2d(8, 16, 3), nn.ReLU(), nn.Conv2d(16, 8, 1), nn.Flatten())


@pytest.mark.parametrize("mode", ["infer", "train"])
def test_weights_are_frozen_in_inference(mode: Mode) -> None:
    found = asked(CONVOLUTIONS, mode, AskedEngines(), 4, 8, 6, 6)
    assert found
    assert {item.frozen for item in found} == {mode == "infer"}  # type: ignore[attr-defined]


def test_a_weight_that_depends_on_the_input_is_not() -> None:
    found = asked(Dynamic(), "infer", AskedEngines(), 5, 8)
    assert {item.n: item.frozen for item in found if isinstance(item, Problem)}[64]
    assert not all(item.frozen for item in found if isinstance(item, Problem))


@pytest.mark.parametrize(("cache", "cold"), [(64 << 20, False), (2 << 20, True)])
def test_weights_are_cold_if_all_of_them_exceed_half_of_the_cache(cache: int, cold: bool) -> None:
    engines = TimedEngines(lambda operation: 1000.0)
    engines.gpu.cache_bytes = cache
    module = nn.Sequential(nn.Linear(1024, 768), nn.ReLU(), nn.Linear(768, 8))
    found = asked(module, "infer", engines, 4, 1024)
    assert found and {item.cold for item in found} == {cold}  # type: ignore[attr-defined]


def test_nothing_is_cold_that_is_not_timed() -> None:
    module = nn.Sequential(nn.Linear(1024, 768), nn.ReLU(), nn.Linear(768, 8))
    found = asked(module, "infer", AskedEngines(), 4, 1024)
    assert found and not any(item.cold for item in found)  # type: ignore[attr-defined]
