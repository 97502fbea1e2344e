"""Tensors without axes that hold what is known become numbers; nothing that is computed changes."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st
from torch import Tensor, nn

from golow.lower.aten.scalar_constants import inline_numbers
from golow.lower.fuse.epilogue_fusion import drop_neutral_numbers
from golow.lower.fuse.products import scale_products
from golow.lower.ir.clean_up import eliminate_dead_code
from golow.lower.ir.graph import Graph, Ref, decode_graph, encode_graph
from golow.lower.operators.attention import Attention
from golow.lower.operators.binary import Binary
from golow.lower.operators.gather import Gather
from golow.lower.operators.matrix_product import MatrixProduct
from golow.lower.operators.pointwise import Pointwise
from golow.lower.recognise.attention_fusion import name_attention
from golow.lower.to_vocabulary import CANONICAL
from support.examples import examples
from support.graphs.lowering import Case, count, record, records
from support.models.written_attention import ANY

LOWERED = (*CANONICAL, eliminate_dead_code)
FUNCTIONS: dict[str, Callable[[Any, Any], Any]] = {
    "add": torch.add,
    "subtract": torch.sub,
    "multiply": torch.mul,
    "divide": torch.div,
    "power": torch.pow,
    "less": torch.lt,
}


class Of(nn.Module):
    """A function of x and a layer's result. number: a tensor without axes in an attribute."""

    def __init__(self, function: Callable[[Of, Tensor], Any], number: Tensor | None = None) -> None:
        super().__init__()
        self.layer, self.function, self.number = nn.Linear(4, 4), function, number

    def forward(self, x: Tensor) -> Any:
        return self.function(self, self.layer(x))


def lowered(function: Callable[[Of, Tensor], Any], number: Tensor | None = None) -> Graph:
    return Case(Of(function, number), torch.randn(3, 4)).after(*LOWERED)


def test_the_root_of_a_tensor_is_a_number() -> None:
    graph = lowered(lambda own, x: x / torch.sqrt(torch.tensor(64.0)))
    divided = record(graph, Binary)
    assert (divided.function, divided.b) == ("divide", 8.0)
    assert not [item for item in graph.inputs if item.kind == "constant"]


def test_a_tensor_of_the_model_is_a_number() -> None:
    graph = lowered(lambda own, x: own.number * x, torch.tensor(2.5))
    assert [product.b for product in records(graph, Binary)] == [2.5]


def test_a_parameter_and_a_buffer_are_none() -> None:
    module = Of(lambda own, x: x * own.scale * own.kept)
    module.scale = nn.Parameter(torch.tensor(2.0))
    module.register_buffer("kept", torch.tensor(3.0))
    graph = Case(module, torch.randn(3, 4)).after(*LOWERED)
    assert all(isinstance(product.b, Ref) for product in records(graph, Binary))
    assert {item.target for item in graph.inputs if item.number is not None} == set()


def test_a_tensor_that_the_model_changes_is_none() -> None:
    """What is written into a copy of it is computed."""

    def function(own: Of, x: Tensor) -> Tensor:
        return x * torch.tensor(2.0).add_(x.mean())

    graph = lowered(function)
    assert any(isinstance(product.b, Ref) for product in records(graph, Binary))


def test_minus_infinity_is_no_number_of_a_graph() -> None:
    """A graph is JSON, which cannot write it."""
    graph = lowered(lambda own, x: torch.where(x > 0, x, own.number).exp(), torch.tensor(-math.inf))
    assert all(item.number is None for item in graph.inputs)
    assert decode_graph(encode_graph(graph)) == graph


def test_the_lowest_number_hides_scores() -> None:
    """`masked_fill` by a tensor is that by its number, so that attention is seen."""

    class Hides(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            heads = x.view(2, 6, 2, 8).transpose(1, 2)
            mask = torch.ones(6, 6).triu(1).bool()
            scores = heads @ heads.transpose(2, 3) / torch.sqrt(torch.tensor(16.0))
            scores = scores.masked_fill(mask, torch.tensor(torch.finfo(torch.float32).min))
            return scores.softmax(-1) @ heads

    case = Case(Hides(), torch.randn(2, 6, 16))
    graph = case.after(*LOWERED, scale_products, name_attention(ANY))
    assert record(graph, Attention).scale == 0.25


@pytest.mark.parametrize("first", [False, True])
@given(
    st.sampled_from([*FUNCTIONS]),
    st.one_of(st.integers(-3, 3), st.sampled_from([-1.5, 0.0, 0.5, 1.0]), st.booleans()),
    st.sampled_from([torch.float32, torch.int64]),
)
@examples(15)
def test_any_function_of_a_number_is_what_it_was(
    first: bool, function: str, number: float, dtype: torch.dtype
) -> None:
    """Of numbers, integers and truth values, on either side; `Case.after` runs every stage."""
    assume(function != "subtract" or not isinstance(number, bool))  # torch has no such difference
    assume(function != "power" or number > 0)
    assume(function != "divide" or number != 0)
    held = torch.tensor(number)

    class Function(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            values = (x.abs() * 3 + 1).to(dtype)  # roots and quotients are numbers
            pair = (held, values) if first else (values, held)
            return FUNCTIONS[function](*pair).float()

    graph = Case(Function(), torch.rand(3, 4) + 0.5).after(*LOWERED)
    assert graph.outputs


@pytest.mark.parametrize("function", ["add", "subtract", "multiply", "divide"])
def test_neutral_numbers_are_dropped(function: str) -> None:
    neutral, other = (0, 1) if function in ("add", "subtract") else (1, 2)
    for number, left in ((neutral, 0), (other, 1)):
        graph = lowered(lambda own, x, n=number: FUNCTIONS[function](x, n))  # type: ignore[misc]
        assert count(drop_neutral_numbers(graph), Binary) == left


def test_a_scale_goes_through_a_gather() -> None:
    """As that of a relative position's term, which is looked up among all positions'."""

    class Looks(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            index = (torch.arange(5)[:, None] - torch.arange(4)[None] + 4).expand(2, 5, 4)
            positions = x.mean(1, keepdim=True).expand(2, 9, 6).reshape(2, 9, 6)
            return (x @ positions.transpose(1, 2)).gather(2, index) / 7.0

    case = Case(Looks(), torch.randn(2, 5, 6))
    graph = case.after(*LOWERED, scale_products)
    assert [made.factor for made in records(graph, MatrixProduct)] == [1 / 7]
    assert count(graph, Gather) == 1 and not [
        one for one in records(graph, Binary) if one.function == "divide"
    ]


def test_nothing_known_changes_nothing() -> None:
    graph = lowered(lambda own, x: x.relu() + x)
    assert inline_numbers(graph) is graph
    assert not records(graph, Pointwise)
