"""The arithmetic of quantised layers becomes its operators; what is nearly that stays as it is."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from golow.lower.operators.convolution import Convolution
from golow.lower.operators.linear import Linear
from golow.lower.operators.quantize import Quantize
from golow.lower.operators.quantized_convolution import QuantizedConvolution
from golow.lower.operators.quantized_linear import QuantizedLinear
from golow.workload.quantization.quantize import quantized
from support.graphs.lowering import Case, count
from support.models.quantized_networks import quantized_blocks, samples_of


def images() -> Tensor:
    return torch.randn(2, 3, 9, 9, generator=torch.Generator().manual_seed(0))


def test_layers_are_named_with_all_that_belongs_to_them() -> None:
    """Every stage of both levels computes the same in float64."""
    graph = Case(quantized_blocks(images()), images()).lowered("onednn")
    assert count(graph, QuantizedConvolution) == 3
    assert count(graph, QuantizedLinear) == 1
    assert count(graph, Convolution) == count(graph, Linear) == 0
    kinds = [QuantizedConvolution.of(node) for node in graph.nodes]
    layers = [layer for layer in kinds if layer is not None]
    assert all(layer.bias is not None for layer in layers)
    assert [layer.residual is not None for layer in layers] == [False, True, False]
    quantizes = [found for node in graph.nodes if (found := Quantize.of(node)) is not None]
    assert [found.dtype for found in quantizes] == ["int8", "uint8", "uint8"]
    # The second layer adds what the first one gives, which therefore writes float32. The third one
    # reads whole numbers of the second alone.
    assert [layer.result_type for layer in layers] == ["float32", "uint8", "float32"]


def test_the_other_level_names_linear_layers_alone() -> None:
    graph = Case(quantized_blocks(images()), images()).lowered("cudnn")
    assert (count(graph, Convolution), count(graph, QuantizedConvolution)) == (3, 0)
    assert (count(graph, Linear), count(graph, QuantizedLinear)) == (0, 1)


def test_layers_that_read_one_value_quantise_it_once() -> None:
    class Two(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.one, self.other = nn.Linear(6, 4), nn.Linear(6, 4)

        def forward(self, x: Tensor) -> Tensor:
            return self.one(x) * self.other(x)

    x = torch.randn(3, 6)
    module = quantized(Two().eval(), "int8", samples_of(x)).module
    assert module.get_submodule("other").input_scale is module.get_submodule("one").input_scale
    graph = Case(module, x).lowered("onednn")
    assert count(graph, QuantizedLinear) == 2
    assert count(graph, Quantize) == 1


def test_a_rounding_for_two_layers_is_fused_once() -> None:
    class Three(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.one, self.other = nn.Linear(6, 5), nn.Linear(5, 4), nn.Linear(5, 4)

        def forward(self, x: Tensor) -> Tensor:
            y = functional.relu(self.first(x))
            return self.one(y) * self.other(y)

    x = torch.randn(3, 6)
    graph = Case(quantized(Three().eval(), "int8", samples_of(x)).module, x).lowered("onednn")
    layers = [layer for node in graph.nodes if (layer := QuantizedLinear.of(node)) is not None]
    assert [layer.result_type for layer in layers] == ["uint8", "float32", "float32"]
    assert count(graph, Quantize) == 1


class Written(nn.Module):
    """A quantised linear layer, written by hand, one part of which is replaced."""

    def __init__(
        self,
        *,
        limit: Callable[[Tensor], Tensor] = lambda x: x.clamp(-128, 127),
        scale: tuple[int, ...] = (),
        dtype: torch.dtype = torch.int8,
        sums: Callable[[Tensor, Tensor], Tensor] = functional.linear,
    ) -> None:
        super().__init__()
        self.limit, self.sums = limit, sums
        self.register_buffer("weight", torch.randint(-127, 128, (4, 6)).to(dtype))
        self.register_buffer("input_scale", torch.full(scale, 20.0))
        self.register_buffer("output_scale", torch.rand(4))

    def forward(self, x: Tensor) -> Tensor:
        """[N, 6] -> [N, 4]"""
        numbers = self.limit(torch.round(x * self.input_scale))
        return self.sums(numbers, self.weight.to(torch.float32)) * self.output_scale


WRITTEN = {
    "as it is": {},
    "unsigned": {"limit": lambda x: x.clamp(0, 255)},
}
OTHERS = {
    "another range": {"limit": lambda x: x.clamp(-127, 127)},
    "no range": {"limit": lambda x: x},
    "a scale for each channel": {"scale": (6,)},
    "a weight of 16 bits": {"dtype": torch.int16},
    "sums of other products": {"sums": lambda x, w: functional.linear(x + 0.5, w)},
}


@pytest.mark.parametrize("name", ["as it is", "unsigned"])
def test_arithmetic_written_by_hand_is_named(name: str) -> None:
    graph = Case(Written(**WRITTEN[name]).eval(), torch.randn(3, 6)).lowered("onednn")
    assert count(graph, QuantizedLinear) == 1


@pytest.mark.parametrize("name", OTHERS)
def test_what_is_nearly_that_stays(name: str) -> None:
    graph = Case(Written(**OTHERS[name]).eval(), torch.randn(3, 6)).lowered("onednn")
    assert count(graph, QuantizedLinear) == 0
    assert count(graph, Linear) == 1


def test_a_scale_that_depends_on_the_input_stays() -> None:
    class Dynamic(Written):
        def forward(self, x: Tensor) -> Tensor:
            numbers = torch.round(x * (127 / x.abs().amax())).clamp(-128, 127)
            return functional.linear(numbers, self.weight.to(torch.float32)) * self.output_scale

    graph = Case(Dynamic().eval(), torch.randn(3, 6)).lowered("onednn")
    assert count(graph, QuantizedLinear) == 0


def test_sums_that_int32_may_not_hold_stay() -> None:
    class Long(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("weight", torch.ones(1, 66_000, dtype=torch.int8))
            self.register_buffer("scale", torch.tensor(1.0))
            self.register_buffer("output_scale", torch.ones(1))

        def forward(self, x: Tensor) -> Tensor:
            numbers = torch.round(x * self.scale).clamp(0, 255)
            return functional.linear(numbers, self.weight.to(torch.float32)) * self.output_scale

    graph = Case(Long().eval(), torch.randn(1, 66_000)).lowered("onednn")
    assert count(graph, QuantizedLinear) == 0
