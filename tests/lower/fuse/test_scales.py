"""Products with a vector of weights go into the layer before them, and sums follow; what depends on
the input stays."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, cast

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from golow.lower.fuse.epilogue_fusion import fuse_residual
from golow.lower.fuse.weight_folding import fold_scale
from golow.lower.ir.clean_up import eliminate_dead_code
from golow.lower.ir.graph import Graph
from golow.lower.operators.binary import Binary
from golow.lower.operators.convolution import Convolution
from golow.lower.operators.folded_batch_norm import FoldedWeight
from golow.lower.operators.linear import Linear
from golow.lower.to_vocabulary import CANONICAL
from golow.lower.views.view_sinking import scale_and_add_before_views
from support.direct.cuda_on_cpu import follow
from support.direct.cudnn_plans import AskedEngines
from support.examples import examples
from support.graphs.drawn_values import drawn
from support.graphs.lowering import Case, count, record, records

if TYPE_CHECKING:
    from golow.levels.direct.cudnn.engines.engines import Engines

FOLDED = (
    *CANONICAL,
    scale_and_add_before_views,
    fold_scale,
    scale_and_add_before_views,
    fuse_residual,
)
PASSES = (*FOLDED, eliminate_dead_code)


class Scaled(nn.Module):
    """A convolution and linear layers, and a function of x and them. x: [2, 6, 5, 4]."""

    def __init__(self, function: Callable[[Scaled, Tensor], Any], bias: bool = True) -> None:
        super().__init__()
        self.convolution = nn.Conv2d(6, 6, 3, padding=1, bias=bias)
        self.linear, self.other = nn.Linear(4, 4, bias=bias), nn.Linear(6, 6, bias=bias)
        self.of_four, self.of_six = nn.Parameter(torch.randn(4)), nn.Parameter(torch.randn(6, 1, 1))
        self.function = function

    def forward(self, x: Tensor) -> Any:
        return self.function(self, x)


def folded(function: Callable[[Scaled, Tensor], Any], bias: bool = True) -> Graph:
    torch.manual_seed(0)
    return Case(Scaled(function, bias), torch.randn(2, 6, 5, 4)).after(*PASSES)


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize(
    "function",
    [
        lambda own, x: own.linear(x) * own.of_four,
        lambda own, x: own.of_four * own.linear(x),
        lambda own, x: own.convolution(x) * own.of_six,
        lambda own, x: own.convolution(x) * (own.of_six.exp() + 1)[None],
    ],
    ids=["linear", "vector first", "convolution", "computed vector"],
)
def test_a_scale_is_folded(function: Callable[[Scaled, Tensor], Any], bias: bool) -> None:
    graph = folded(function, bias)
    assert count(graph, FoldedWeight) == 1 + bias
    assert not [product for product in records(graph, Binary) if product.function == "multiply"]


@pytest.mark.parametrize(
    "function",
    [
        lambda own, x: own.linear(x) * own.of_four * x.mean(),
        lambda own, x: (own.linear(x) + x) * own.of_four,
        lambda own, x: own.linear(x).relu() * own.of_four,
    ],
)
def test_what_is_scaled_after_something_else_is_left(
    function: Callable[[Scaled, Tensor], Any],
) -> None:
    assert [one for one in records(folded(function), Binary) if one.function == "multiply"]


@pytest.mark.parametrize(
    "function",
    [
        lambda own, x: own.linear(x) * x.mean((0, 1, 2)),
        lambda own, x: own.linear(x) * own.of_six,
        lambda own, x: own.convolution(x) * own.of_four,
        lambda own, x: own.linear(x) * own.of_four[:1],
        lambda own, x: own.linear(x) * (own.of_four * own.of_six),
        lambda own, x: (lambda y: (y * own.of_four, y))(own.linear(x)),
    ],
    ids=["input", "channels", "columns", "one number", "two axes", "read twice"],
)
def test_other_products_stay(function: Callable[[Scaled, Tensor], Any]) -> None:
    assert count(folded(function), FoldedWeight) == 0


@pytest.mark.parametrize(
    "function",
    [
        lambda own, x: (lambda y: y + y)(own.linear(x).permute(0, 3, 1, 2)),
        lambda own, x: x.mean() * (lambda y: y * y)(own.linear(own.of_four[None])),
    ],
    ids=["sum", "product of weights"],
)
def test_a_value_with_itself_is_left(function: Callable[[Scaled, Tensor], Any]) -> None:
    assert count(folded(function), FoldedWeight) == 0


def block(own: Scaled, x: Tensor) -> Tensor:
    """As ConvNeXt ends one: the layer's result is permuted before scale and sum."""
    y = own.other(own.convolution(x).permute(0, 2, 3, 1)).permute(0, 3, 1, 2)
    return x + own.of_six * y


def test_a_block_of_convnext_ends_with_its_layer() -> None:
    graph = folded(block)
    assert record(graph, Linear).residual is not None
    assert count(graph, Binary) == 0 and count(graph, Convolution) == 1
    tensors = {item.value.name: drawn(item.value) for item in graph.inputs}
    follow(graph, cast("Engines", AskedEngines()), tensors)


@given(st.permutations(range(4)), st.booleans(), st.booleans())
@examples(12)
def test_any_permutation(order: list[int], scales: bool, adds: bool) -> None:
    """`Case.after` compares every stage."""

    def function(own: Scaled, x: Tensor) -> Tensor:
        y = own.linear(x).permute(order)
        if scales:
            shape = [1] * 4
            shape[order.index(3)] = 4
            y = y * own.of_four.view(shape)
        return y + x.permute(order) if adds else y

    graph = folded(function)
    assert count(graph, Binary) == 0
