"""Vectors divided by their length: what is recognised, its kernel's values, and plans."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, cast

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn import functional

from golow.levels.direct.cudnn.operators.unit_norm import Factors, Lines, unit_norm_kernel
from golow.lower.fuse.products import scale_products
from golow.lower.ir.clean_up import eliminate_dead_code
from golow.lower.operators.attention import Attention
from golow.lower.operators.binary import Binary
from golow.lower.operators.unit_norm import UnitNorm
from golow.lower.recognise.attention_fusion import name_attention
from golow.lower.recognise.unit_norm import name_unit_norm
from golow.lower.to_vocabulary import CANONICAL
from support.direct.cuda_on_cpu import follow
from support.direct.cudnn_plans import AskedEngines
from support.direct.kernel_compilation import assert_compile
from support.direct.kernel_launches import ROUNDING, gpu, on_host, run, torch_type
from support.examples import examples
from support.graphs.drawn_values import drawn
from support.graphs.lowering import Case, count, records
from support.models.written_attention import ANY

if TYPE_CHECKING:
    from golow.levels.direct.cudnn.engines.engines import Engines

__all__ = ["gpu"]  # a fixture

LOWERED = (*CANONICAL, eliminate_dead_code)


class Of(nn.Module):
    def __init__(self, function: Callable[[Tensor, Tensor], Any]) -> None:
        super().__init__()
        self.layer, self.factor = nn.Linear(6, 6), nn.Parameter(torch.rand(3, 1, 1) + 1)
        self.function = function

    def forward(self, x: Tensor) -> Any:
        return self.function(self.layer(x), self.factor)


def case_of(function: Callable[[Tensor, Tensor], Any]) -> Case:
    torch.manual_seed(0)
    return Case(Of(function), torch.randn(2, 3, 4, 6))


def norms(function: Callable[[Tensor, Tensor], Any]) -> list[UnitNorm]:
    """The norms that the pass finds, after a check that nothing else changed."""
    case = case_of(function)
    graph = case.after(*LOWERED, name_unit_norm)
    return records(graph, UnitNorm)


@pytest.mark.parametrize(
    ("function", "epsilon"),
    [
        (lambda x, f: functional.normalize(x, dim=-1), 1e-12),
        (lambda x, f: functional.normalize(x, dim=3, eps=0.5), 0.5),
        (lambda x, f: x / x.norm(dim=-1, keepdim=True), 0.0),
        (lambda x, f: x / x.pow(2).sum(-1, keepdim=True).sqrt(), 0.0),
        (lambda x, f: x / x.square().sum(-1, keepdim=True).sqrt().clamp(min=1e-3), 1e-3),
    ],
)
def test_it_is_named(function: Callable[[Tensor, Tensor], Any], epsilon: float) -> None:
    (found,) = norms(function)
    assert found.epsilon == epsilon and found.factor is None


@pytest.mark.parametrize("swapped", [False, True])
def test_the_factor_of_a_head_is_its_own(swapped: bool) -> None:
    def function(x: Tensor, factor: Tensor) -> Tensor:
        unit, wide = functional.normalize(x, dim=-1), factor.view(1, 3, 1, 1)
        return wide * unit if swapped else unit * wide

    (found,) = norms(function)
    assert found.factor is not None


@pytest.mark.parametrize(
    "function",
    [
        lambda x, f: functional.normalize(x, dim=1),
        lambda x, f: functional.normalize(x, p=1.0, dim=-1),
        lambda x, f: x / x.norm(dim=(2, 3), keepdim=True),
        lambda x, f: x / (x.norm(dim=-1, keepdim=True) + 1e-3),
        lambda x, f: (x + 1) / x.norm(dim=-1, keepdim=True),
    ],
)
def test_what_is_something_else_stays(function: Callable[[Tensor, Tensor], Any]) -> None:
    assert norms(function) == []


def test_a_length_that_is_read_stays() -> None:
    def function(x: Tensor, factor: Tensor) -> tuple[Tensor, Tensor]:
        length = x.norm(dim=-1, keepdim=True)
        return x / length, length

    assert norms(function) == []


class Cosine(nn.Module):
    """Attention by angles, as Swin V2's."""

    def __init__(self, factors_first: bool = False) -> None:
        super().__init__()
        self.factors_first = factors_first
        self.inner = nn.Linear(24, 72)
        self.scale = nn.Parameter(torch.randn(3, 1, 1))
        self.bias = nn.Parameter(torch.randn(3, 5, 5))

    def forward(self, x: Tensor) -> Tensor:
        query, key, value = self.inner(x).view(2, 5, 3, 3, 8).permute(2, 0, 3, 1, 4)
        scores = functional.normalize(query, dim=-1) @ functional.normalize(key, dim=-1).mT
        factors = self.scale.clamp(max=4.6).exp()
        scores = (factors * scores if self.factors_first else scores * factors) + self.bias
        return (scores.softmax(-1) @ value).transpose(1, 2).reshape(2, 5, 24)


@pytest.mark.parametrize("factors_first", [False, True])
def test_attention_by_angles_is_attention(factors_first: bool) -> None:
    """The factors of scores are those of the queries, by which they are divided anyway."""
    torch.manual_seed(0)
    case = Case(Cosine(factors_first), torch.randn(2, 5, 24))
    graph = case.after(*LOWERED, scale_products, name_attention(ANY), name_unit_norm)
    assert count(graph, Attention) == 1
    assert [norm.factor is None for norm in records(graph, UnitNorm)] in (
        [False, True],
        [True, False],
    )
    assert [product for product in records(graph, Binary) if product.function == "divide"] == []


def test_what_multiplies_a_sum_of_scores_is_not_theirs_alone() -> None:
    class Sum(Cosine):
        def forward(self, x: Tensor) -> Tensor:
            query, key, value = self.inner(x).view(2, 5, 3, 3, 8).permute(2, 0, 3, 1, 4)
            scores = (query @ key.mT + self.bias) * self.scale
            return (scores.softmax(-1) @ value).transpose(1, 2).reshape(2, 5, 24)

    case = Case(Sum(), torch.randn(2, 5, 24))
    assert count(case.after(*LOWERED, scale_products, name_attention(ANY)), Attention) == 0


@pytest.mark.parametrize("kind", ["heads", "along tokens", "factor"])
def test_every_value_is_where_the_plan_says(kind: str) -> None:
    """Rows are read where they are stored; those that are not contiguous are copied first."""

    def function(x: Tensor, factor: Tensor) -> Tensor:
        if kind == "along tokens":
            return functional.normalize(x.transpose(2, 3), dim=-1).sum((1, 3))
        unit = functional.normalize(x.transpose(1, 2), dim=-1)
        return (unit * factor.view(1, 1, 3, 1) if kind == "factor" else unit).sum((1, 3))

    case = case_of(function)
    graph = case.after(*LOWERED, name_unit_norm)
    assert count(graph, UnitNorm) == 1
    tensors = {item.value.name: drawn(item.value) for item in graph.inputs}
    follow(graph, cast("Engines", AskedEngines()), tensors)


# ---------------------------------------------------------------- the kernel


def assert_right(launch: Any, sizes: tuple[int, int, int], columns: int, types: Any) -> None:
    """Rows in another order than PyTorch's, with gaps, a factor for each of the second axis, and a
    row without a length."""
    source, dtype = types
    first, second, third = sizes
    torch.manual_seed(columns)
    memory = torch.randn(second, third, first, columns).to(torch_type(source))
    memory[0, 0, 0] = 0
    memory[-1, -1, -1, -1] = math.nan  # in a row that is lost
    x = memory.permute(2, 0, 1, 3)
    factor = torch.rand(second) + 0.5
    steps = tuple(x.stride()[:3])
    kernel = unit_norm_kernel(
        source, dtype, Lines(sizes, steps, columns), Factors(third, second), 1e-12
    )  # type: ignore[arg-type]
    found = torch.full((first, second, third, columns), math.nan).to(torch_type(dtype))
    launch(kernel, [memory, factor], [found])
    wanted = functional.normalize(x.double(), dim=-1) * factor.double().view(1, second, 1, 1)
    limit = 2 * ROUNDING[dtype] if dtype != "float32" else 1e-6
    torch.testing.assert_close(found.double(), wanted, rtol=limit, atol=limit, equal_nan=True)


TYPES = [("float32", "float32"), ("bfloat16", "bfloat16"), ("float32", "bfloat16")]


@pytest.mark.parametrize("types", TYPES)
@pytest.mark.parametrize("columns", [1, 32, 49, 4096])
def test_it_is_right_on_this_processor(columns: int, types: tuple[str, str]) -> None:
    assert_right(on_host, (2, 3, 5), columns, types)


@given(st.tuples(*[st.integers(1, 5)] * 3), st.sampled_from([8, 49]))
@examples(10)
def test_any_sizes_are_right_on_this_processor(sizes: tuple[int, int, int], columns: int) -> None:
    assert_right(on_host, sizes, columns, TYPES[1])


def test_it_compiles() -> None:
    kinds = [(columns, types) for columns in (32, 49, 4096) for types in TYPES]
    assert_compile(
        unit_norm_kernel(*types, Lines((2, 3, 4), (12, 4, 1), columns), Factors(), 1e-6)
        for columns, types in kinds
    )


@pytest.mark.gpu
@pytest.mark.parametrize("types", TYPES)
@pytest.mark.parametrize("columns", [1, 32, 49, 768, 4096])
def test_it_is_right(gpu: Any, columns: int, types: tuple[str, str]) -> None:
    assert_right(partial(run, gpu), (7, 3, 65), columns, types)
