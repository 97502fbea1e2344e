"""Layer norms that a network writes itself are one operator in inference, at both direct levels."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from golow.levels.direct.onednn.level import probe
from golow.lower.operators.layer_norm import LayerNorm
from golow.lower.operators.reduce import Reduce
from support.direct.in_process import assert_right
from support.graphs.lowering import Case, count, records

Function = Callable[[Tensor], Tensor]


def of_squares(x: Tensor, axis: int = -1) -> Tensor:
    """As DeBERTa writes it."""
    mean = x.mean(axis, keepdim=True)
    variance = (x - mean).pow(2).mean(axis, keepdim=True)
    return (x - mean) / torch.sqrt(variance + 1e-3)


def of_products(x: Tensor) -> Tensor:
    centred = x - x.mean((1, 2), keepdim=True)
    return centred * torch.rsqrt((centred * centred).mean((1, 2), keepdim=True) + 1e-3)


def of_variance(x: Tensor, correction: int = 0) -> Tensor:
    variance = x.var(-1, correction=correction, keepdim=True)
    return (x - x.mean(-1, keepdim=True)) / (variance + 1e-3).sqrt()


class Written(nn.Module):
    """A norm with weight and bias of the last axis, or of an image's channels, after a layer."""

    def __init__(self, norm: Function, *shape: int) -> None:
        super().__init__()
        self.norm = norm
        self.weight, self.bias = nn.Parameter(torch.rand(shape)), nn.Parameter(torch.rand(shape))

    def forward(self, x: Tensor) -> Tensor:
        return self.weight * self.norm(torch.tanh(x)) + self.bias


class OfChannels(nn.Module):
    """Between convolutions, as many networks have it."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Conv2d(3, 8, 3), nn.Conv2d(8, 4, 1)
        self.weight, self.bias = nn.Parameter(torch.rand(8)), nn.Parameter(torch.rand(8))

    def forward(self, x: Tensor) -> Tensor:
        x = of_squares(self.first(x), 1)
        return self.last(self.weight[:, None, None] * x + self.bias[:, None, None])


NAMED: dict[str, tuple[nn.Module, tuple[int, ...]]] = {
    "squares": (Written(of_squares, 8), (2, 5, 8)),
    "products over two axes": (Written(of_products, 5, 8), (2, 5, 8)),
    "a variance": (Written(of_variance, 8), (2, 5, 8)),
    "channels": (OfChannels(), (2, 3, 6, 7)),
}
STAYS: dict[str, Function] = {
    "an unbiased variance": lambda x: of_variance(x, 1),
    "another mean": lambda x: (
        (x - x.mean(1, keepdim=True))
        / ((x - x.mean(-1, keepdim=True)).pow(2).mean(-1, keepdim=True) + 1e-3).sqrt()
    ),
}


@pytest.mark.parametrize("name", NAMED)
def test_a_written_norm_is_one_operator(name: str) -> None:
    module, shape = NAMED[name]
    torch.manual_seed(0)
    case = Case(module.eval(), torch.randn(shape))
    for passes in case.direct_passes().values():
        graph = case.after(*passes)
        (norm,) = records(graph, LayerNorm)
        assert norm.weight is not None and norm.bias is not None
        assert not count(graph, Reduce)


@pytest.mark.parametrize("name", STAYS)
def test_other_arithmetic_stays(name: str) -> None:
    case = Case(Written(STAYS[name], 8).eval(), torch.randn(2, 5, 8))
    assert not count(case.lowered("onednn"), LayerNorm)


@pytest.mark.skipif(not probe().available, reason="oneDNN is not installed")
def test_onednn_computes_what_torch_does() -> None:
    from support.direct.onednn_in_process import compute, lower

    module, shape = NAMED["channels"]
    torch.manual_seed(0)
    network = lower(module.eval(), torch.randn(shape), "infer")
    assert_right(network, compute(network))
