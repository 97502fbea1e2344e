"""The arithmetic of layers of e4m3 becomes its operators; what is nearly that stays as it is."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from golow.lower.operators.linear import Linear
from golow.lower.operators.quantize import E4M3, Quantize
from golow.lower.operators.quantized_linear import QuantizedLinear
from support.graphs.lowering import Case, count
from support.models.narrow_blocks import gated, rows

EVERY = torch.arange(256, dtype=torch.uint8).view(torch.float8_e4m3fn).float().nan_to_num()


def test_layers_are_named_with_all_that_belongs_to_them() -> None:
    """Every stage of both levels computes the same in float64."""
    x = rows(2, 5)
    graph = Case(gated("fp8", x), x).lowered("cudnn")
    assert count(graph, Linear) == 0
    layers = [layer for node in graph.nodes if (layer := QuantizedLinear.of(node)) is not None]
    assert [layer.bias is not None for layer in layers] == [True, False, True, True, True]
    assert [layer.residual is not None for layer in layers] == [False, True, False, True, False]
    # The gate is one layer with its input, and its activation is in the product of both.
    names = [layer.activation and layer.activation.name for layer in layers]
    assert names == [None, None, "gelu_tanh", "relu", None]
    assert [layer.result_type for layer in layers] == ["float32"] * 2 + [E4M3, E4M3, "float32"]
    assert count(graph, Quantize) == 1  # the norms round what they write


def test_the_other_level_computes_the_arithmetic() -> None:
    x = rows(2, 5)
    graph = Case(gated("fp8", x), x).lowered("onednn")
    assert count(graph, QuantizedLinear) == count(graph, Quantize) == 0


class Written(nn.Module):
    """A layer of e4m3, written by hand, one part of which is replaced."""

    def __init__(
        self,
        *,
        least: float = 2.0**-6,
        bits: int = 3,
        largest: float = 448.0,
        table: Callable[[Tensor], Tensor] = lambda every: every,
        whole: Callable[[Tensor], Tensor] = torch.round,
    ) -> None:
        super().__init__()
        self.least, self.bits, self.largest, self.whole = least, bits, largest, whole
        self.register_buffer("table", table(EVERY), persistent=False)
        generator = torch.Generator().manual_seed(0)
        weight = torch.randint(0, 120, (4, 1, 6), generator=generator)
        self.register_buffer("weight", weight.to(torch.uint8))
        self.register_buffer("input_scale", torch.tensor(20.0))
        self.register_buffer("output_scale", torch.rand(4, 1, 1))

    def forward(self, x: Tensor) -> Tensor:
        """[N, 6] -> [N, 4]"""
        scaled = torch.clamp(x * self.input_scale, -self.largest, self.largest)
        exponent = torch.floor(torch.log2(torch.clamp(scaled.abs(), min=self.least)))
        unit = torch.pow(2.0, exponent - self.bits)
        numbers = self.whole(scaled / unit) * unit
        weight = self.table[self.weight.long()].flatten(1)
        return functional.linear(numbers, weight) * self.output_scale.flatten()


OTHERS = {
    "another range": {"largest": 240.0},
    "more bits": {"bits": 4},
    "another smallest number": {"least": 2.0**-7},
    "another table": {"table": lambda every: every * 2},
    "rounded down": {"whole": torch.floor},
}


def test_arithmetic_written_by_hand_is_named() -> None:
    graph = Case(Written().eval(), torch.randn(3, 6)).lowered("cudnn")
    assert (count(graph, QuantizedLinear), count(graph, Linear)) == (1, 0)


@pytest.mark.parametrize("name", OTHERS)
def test_what_is_nearly_that_stays(name: str) -> None:
    graph = Case(Written(**OTHERS[name]).eval(), torch.randn(3, 6)).lowered("cudnn")
    assert (count(graph, QuantizedLinear), count(graph, Linear)) == (0, 1)
