"""Activations that networks write out are one operator in inference, within the layer before."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from golow.lower.operators.activation import Activate
from golow.lower.operators.linear import Linear
from support.graphs.lowering import Case, assert_close, count

Function = Callable[[Tensor], Tensor]
ROOT = math.sqrt(2 / math.pi)
WRITTEN: dict[str, tuple[str, Function]] = {
    "GPT-2": (
        "gelu_tanh", lambda x: 0.5 * x * (1 + torch.tanh(ROOT * (x + 0.044715 * torch.pow(x, 3)))),
    ),
    "fast": (
        "gelu_tanh",
        lambda x: 0.5 * x * (1 + torch.tanh(x * 0.7978845608 * (1 + 0.044715 * x * x))),
    ),
    "BERT": ("gelu", lambda x: x * 0.5 * (1 + torch.erf(x / math.sqrt(2)))),
    "swish": ("silu", lambda x: x * torch.sigmoid(x)),
}  # fmt: skip
OTHERS: dict[str, Function] = {
    "quick": lambda x: x * torch.sigmoid(1.702 * x),
    "another constant": lambda x: 0.5 * x * (1 + torch.tanh(0.8 * (x + 0.044715 * x * x * x))),
    "mish": lambda x: x * torch.tanh(nn.functional.softplus(x)),
    "gated": lambda x: x * torch.sigmoid(x.flip(-1)),
}


class Layer(nn.Module):
    """A linear layer, the function, and another layer."""

    def __init__(self, function: Function) -> None:
        super().__init__()
        self.function = function
        self.first, self.last = nn.Linear(4, 8), nn.Linear(8, 4)

    def forward(self, x: Tensor) -> Tensor:
        return self.last(self.function(self.first(x)))


@pytest.mark.parametrize("level", ["cudnn", "onednn"])
@pytest.mark.parametrize("name", WRITTEN)
def test_the_layer_before_has_the_activation(name: str, level: str) -> None:
    torch.manual_seed(0)
    expected, function = WRITTEN[name]
    case = Case(Layer(function), torch.randn(3, 4))
    graph = case.lowered(level)
    assert_close(case.run(graph), case.run(case.graph), name)
    layers = [layer for node in graph.nodes if (layer := Linear.of(node)) is not None]
    assert [layer.activation and layer.activation.name for layer in layers] == [expected, None]
    assert len(graph.nodes) == 2


@pytest.mark.parametrize("name", OTHERS)
def test_another_function_stays_as_it_is_written(name: str) -> None:
    torch.manual_seed(0)
    case = Case(Layer(OTHERS[name]), torch.randn(3, 4))
    graph = case.lowered("cudnn")
    assert_close(case.run(graph), case.run(case.graph), name)
    named = [found.activation.name for node in graph.nodes if (found := Activate.of(node))]
    layers = [layer for node in graph.nodes if (layer := Linear.of(node)) is not None]
    named += [layer.activation.name for layer in layers if layer.activation is not None]
    assert not set(named) & {"gelu", "gelu_tanh", "silu", "hardswish"}


def test_a_part_that_is_read_elsewhere_stays() -> None:
    class Both(Layer):
        def forward(self, x: Tensor) -> Tensor:
            x = self.first(x)
            gate = torch.sigmoid(x)
            return self.last(x * gate + gate)

    torch.manual_seed(0)
    case = Case(Both(torch.relu), torch.randn(3, 4))
    graph = case.lowered("cudnn")
    assert_close(case.run(graph), case.run(case.graph), "a gate that is read twice")
    assert count(graph, Linear) == 2
    assert "silu" not in str(graph)


def test_a_function_of_a_vector_that_repeats_stays() -> None:
    class Repeated(Layer):
        def forward(self, x: Tensor) -> Tensor:
            x = self.first(x)
            vector = x[:1]
            return self.last(vector * torch.sigmoid(vector.expand(3, 8)))

    torch.manual_seed(0)
    case = Case(Repeated(torch.relu), torch.randn(3, 4))
    assert_close(case.run(case.lowered("cudnn")), case.run(case.graph), "a vector")
