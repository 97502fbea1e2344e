"""Values times transposed weights of attention are computed the other way round."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from golow.lower.fuse.products import scale_products
from golow.lower.ir.graph import Graph
from golow.lower.ir.rewriting import Links
from golow.lower.operators.attention import Attention
from golow.lower.operators.matrix_product import MatrixProduct
from golow.lower.operators.softmax import Softmax
from golow.lower.recognise.attention_fusion import name_attention
from golow.lower.to_vocabulary import CANONICAL
from golow.lower.views.turned_products import multiply_weights_first
from support.direct import onednn_in_process
from support.direct.in_process import assert_right
from support.graphs.lowering import Case, count, only, records
from support.models.pixel_attention import Pixels
from support.models.written_attention import ANY

Function = Callable[[Tensor, Tensor], Tensor]


class Weighted(nn.Module):
    """Values [..., 4, 6] and scores of them [..., 6, 6]."""

    def __init__(self, function: Function) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: Tensor) -> Tensor:
        return self.function(x, x.mT @ x).sin()


TURNED: dict[str, Function] = {
    "transposed": lambda x, scores: x @ scores.softmax(-1).mT,
    "value in another order": lambda x, scores: (
        x.flip(-1).mT.contiguous().mT @ scores.softmax(-1).mT
    ),
    "transposed again": lambda x, scores: (x @ scores.softmax(-1).mT).mT,
    "joined": lambda x, scores: (x @ scores.softmax(-1).mT).flatten(1),
}
LEFT: dict[str, Function] = {
    "weights first": lambda x, scores: scores.softmax(-1) @ x.mT,
    "not transposed": lambda x, scores: x @ scores.softmax(-1),
    "columns": lambda x, scores: x @ scores.softmax(-2).mT,
    "no softmax": lambda x, scores: x @ scores.relu().mT,
    "weights too": lambda x, scores: x @ (weights := scores.softmax(-1)).mT + weights.mean(),
}


def turned(function: Function, *shape: int) -> Graph:
    """The graph after the pass; it means what it meant before."""
    torch.manual_seed(0)
    case = Case(Weighted(function), torch.randn(shape))
    return case.after(*CANONICAL, multiply_weights_first)


@pytest.mark.parametrize("shape", [(2, 4, 6), (2, 3, 4, 6)], ids=["samples", "heads"])
@pytest.mark.parametrize("name", TURNED)
def test_weights_are_multiplied_by_values(name: str, shape: tuple[int, ...]) -> None:
    graph = turned(TURNED[name], *shape)
    _, product = records(graph, MatrixProduct)
    weights = only(graph, Softmax).outputs[0]
    assert weights is not None
    shown = Links(graph).values[product.a.name]
    assert shown.shape[-2:] == weights.shape[-2:]
    assert Links(graph).values[product.b.name].shape[-2:] == (6, 4)


@pytest.mark.parametrize("name", LEFT)
def test_other_products_stay(name: str) -> None:
    case = Case(Weighted(LEFT[name]), torch.randn(2, 4, 6))
    before = case.after(*CANONICAL)
    assert records(multiply_weights_first(before), MatrixProduct) == records(before, MatrixProduct)


@pytest.mark.parametrize("heads", [0, 2])
def test_attention_between_pixels_is_named(heads: int) -> None:
    case = Case(Pixels(heads=heads), torch.randn(2, 3, 4, 4))
    passes = (scale_products, multiply_weights_first, name_attention(ANY))
    graph = case.after(*CANONICAL, *passes)
    assert count(graph, Attention) == 2
    assert not records(graph, MatrixProduct)
    found = records(graph, Attention)
    values = Links(graph).values
    assert {values[item.query.name].shape for item in found} == {(2, max(heads, 1), 16, 8)}


@pytest.mark.slow
def test_onednn_computes_what_torch_does() -> None:
    torch.manual_seed(0)
    module = Pixels(heads=2).eval()
    network = onednn_in_process.lower(module, torch.randn(2, 3, 4, 4), "infer")
    assert count(network.graph, Attention) == 2
    assert_right(network, onednn_in_process.compute(network))
