"""Layers that round their own results at `onednn`, against exact integer arithmetic."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn import functional

from golow.levels.direct.onednn.bindings import library as binding
from golow.levels.direct.onednn.level import probe
from golow.lower.operators.quantize import Quantize
from golow.lower.operators.quantized_convolution import QuantizedConvolution
from golow.lower.operators.quantized_linear import QuantizedLinear
from support.direct.onednn_in_process import Running, compute, lower
from support.direct.step_checks import steps_check
from support.examples import examples
from support.models import quantized_networks
from support.models.quantized_networks import Quantized, sums

pytestmark = [
    pytest.mark.skipif(not probe().available, reason="oneDNN is not installed"),
    pytest.mark.skipif(probe().available and not binding.has_vnni(), reason="this CPU has no VNNI"),
]

UNIT = 2.0**-6
"""What a unit of the first layer's sums is worth: float32 holds each of its results exactly."""


class Pair(nn.Module):
    """Two layers, with a shortcut around the first one and an activation between them."""

    def __init__(self, first: Quantized, second: Quantized, shortcut: bool, relu: bool) -> None:
        super().__init__()
        self.first, self.second = first, second
        self.first.output_scale.fill_(UNIT)
        self.shortcut, self.relu = shortcut, relu

    def between(self, y: Tensor, x: Tensor) -> Tensor:
        """What the second layer reads, from the first one's result."""
        y = y + x if self.shortcut else y
        return y.relu() if self.relu else y

    def forward(self, x: Tensor) -> Tensor:
        """[N, C, ...] -> [N, K, ...]"""
        return self.second(self.between(self.first(x), x))

    def wanted(self, x: Tensor) -> np.ndarray:
        """The result in exact arithmetic, but for float32's product with the second scale."""
        between = self.between(sums(self.first, x) * UNIT, x.double())
        return sums(self.second, between.float()).numpy().astype(np.float32)


def whole(*shape: int, low: int = -127, high: int = 127, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(low, high + 1, shape, generator=generator)


def assert_exact(pair: Pair, x: Tensor) -> None:
    """Both layers are named, the first one rounds its result, and every number is right."""
    network = lower(pair.eval(), x, "infer")
    layers = [n for n in network.graph.nodes if "quantized" in n.op]
    rule = pair.second.rule
    assert [node.keywords["result_type"] for node in layers] == [
        "int8" if rule.signed else "uint8", "float32",
    ]  # fmt: skip
    assert sum(node.op == Quantize.op() for node in network.graph.nodes) == 1
    np.testing.assert_array_equal(compute(network)["0/output/0"], pair.wanted(x))


SCALES = (1.0, 0.5, 1 / 3, 2.0**-5, 7.0, 1e-6, 1e6)
"""Of what the second layer reads: many ties, none, all clipped, all zero."""


@given(st.data())
@examples(12, suppress_health_check=[HealthCheck.too_slow])
def test_linear_layers_are_exact(data: st.DataObject) -> None:
    inner, columns = data.draw(st.integers(1, 70)), data.draw(st.integers(1, 40))
    shortcut, relu, signed = (data.draw(st.booleans()) for _ in range(3))
    between = inner if shortcut else data.draw(st.integers(1, 70))
    scale = data.draw(st.sampled_from(SCALES))
    first = quantized_networks.linear(whole(between, inner))
    second = quantized_networks.linear(whole(columns, between, seed=1), signed=signed, scale=scale)
    x = whole(data.draw(st.integers(1, 5)), inner, low=-128, seed=2).float()
    assert_exact(Pair(first, second, shortcut, relu), x)


@given(st.data())
@examples(12, suppress_health_check=[HealthCheck.too_slow])
def test_convolutions_are_exact(data: st.DataObject) -> None:
    channels, filters = data.draw(st.integers(1, 9)), data.draw(st.integers(1, 9))
    shortcut, relu, signed = (data.draw(st.booleans()) for _ in range(3))
    depthwise = data.draw(st.booleans())
    between = channels if shortcut or depthwise else data.draw(st.integers(1, 9))
    scale = data.draw(st.sampled_from(SCALES))
    first = quantized_networks.convolution(
        whole(between, 1 if depthwise else channels, 3, 3),
        padding=1,
        groups=channels if depthwise else 1,
    )
    second = quantized_networks.convolution(
        whole(filters, between, 1, 1, seed=1), signed=signed, scale=scale
    )
    size = data.draw(st.integers(1, 7))
    x = whole(data.draw(st.integers(1, 3)), channels, size, size, low=-128, seed=2).float()
    assert_exact(Pair(first, second, shortcut, relu), x)


def test_ties_go_to_the_even_number_and_ends_are_clipped() -> None:
    """Results are halves from -63.5 to 63.5, then from -252 to 252."""
    numbers = torch.arange(-128, 128).clamp(-127, 127)
    first = quantized_networks.linear(numbers[:, None])
    second = quantized_networks.linear(torch.eye(len(numbers)).int(), scale=1.0)
    for size in (32.0, 127.0):
        assert_exact(Pair(first, second, shortcut=False, relu=False), torch.tensor([[size]]))


@pytest.mark.parametrize("signed", [True, False])
def test_whole_numbers_are_pooled(signed: bool) -> None:
    """All negative too: what surrounds the image is smaller than all numbers."""

    class Pooled(Pair):
        def between(self, y: Tensor, x: Tensor) -> Tensor:
            return functional.max_pool2d(y, 3, 2, 1)

    first = quantized_networks.convolution(-whole(5, 3, 3, 3, low=0), padding=1)
    second = quantized_networks.convolution(whole(4, 5, 1, 1), signed=signed, scale=1 / 3)
    x = whole(2, 3, 9, 7, low=0, seed=2).float()
    assert_exact(Pooled(first, second, shortcut=False, relu=False), x)


def test_a_wrong_scale_is_found_in_the_layer_that_rounds() -> None:
    first = quantized_networks.linear(whole(24, 16))
    second = quantized_networks.linear(whole(8, 24, seed=1), scale=0.7)
    network = lower(Pair(first, second, False, False).eval(), whole(4, 16, seed=2).float(), "infer")
    running = Running(network)
    running.point_at(0)
    found = steps_check(network, running.execution, running.execution.run_watched)
    assert not found.wrong
    running.state["second.input_scale"] *= np.float32(1.01)
    running.execution.load(running._weight)
    found = steps_check(network, running.execution, running.execution.run_watched)
    assert [item.layer for item in found.wrong] == ["first"]


def test_the_operators_round_as_the_rule_does() -> None:
    """Their meaning is that of the layer and of `Quantize` after it."""
    x, weight, scale = whole(3, 5), whole(4, 5, seed=1), torch.rand(4)
    step = torch.tensor(0.3)
    plain = QuantizedLinear.meaning(x, weight, scale, None, None, None, None, "float32")
    fused = QuantizedLinear.meaning(x, weight, scale, None, None, None, step, "int8")
    assert torch.equal(fused, Quantize.meaning(plain, step, "int8"))
    image, kernel = x[..., None, None], weight[..., None, None]
    geometry = ((1, 1), (0, 0, 0, 0), (1, 1), 1)
    fused = QuantizedConvolution.meaning(
        image, kernel, scale, None, None, *geometry, None, step, "int8"
    )
    assert torch.equal(fused[..., 0, 0], Quantize.meaning(plain, step, "int8"))
