"""Layers of whole numbers at `onednn`, against exact integer arithmetic."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given
from hypothesis import strategies as st
from torch import Tensor, nn

from golow.levels.direct.onednn.bindings import library as binding
from golow.levels.direct.onednn.build import refusing
from golow.levels.direct.onednn.level import probe
from golow.lower.operators.quantized_convolution import QuantizedConvolution
from golow.lower.operators.quantized_linear import QuantizedLinear
from golow.records.errors import Unsupported
from support.direct.onednn_in_process import Running, compute, lower
from support.direct.step_checks import steps_check
from support.examples import examples
from support.models import quantized_networks
from support.models.quantized_networks import quantized_blocks, sums

pytestmark = [
    pytest.mark.skipif(not probe().available, reason="oneDNN is not installed"),
    pytest.mark.skipif(probe().available and not binding.has_vnni(), reason="this CPU has no VNNI"),
]


def assert_exact(layer: quantized_networks.Quantized, x: Tensor) -> None:
    """The level gives the sums, rounded to float32 once, and by operators of whole numbers."""
    network = lower(layer, x, "infer")
    assert {node.op for node in network.graph.nodes} & {
        QuantizedConvolution.op(), QuantizedLinear.op()
    }  # fmt: skip
    found = compute(network)["0/output/0"]
    wanted = sums(layer, x).numpy().astype(np.float32)
    np.testing.assert_array_equal(found, wanted)


def whole(*shape: int, low: int = -127, high: int = 127, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(low, high + 1, shape, generator=generator)


# ---------------------------------------------------------------- sizes

odd = st.integers(1, 9)


@given(st.data())
@examples(12, suppress_health_check=[HealthCheck.too_slow])
def test_convolutions_of_any_size_are_exact(data: st.DataObject) -> None:
    groups, each, filters = data.draw(st.sampled_from((1, 1, 2, 3))), data.draw(odd), data.draw(odd)
    kernel, padding = data.draw(st.integers(1, 3)), data.draw(st.integers(0, 2))
    stride, signed = data.draw(st.integers(1, 2)), data.draw(st.booleans())
    weight = whole(groups * filters, each, kernel, kernel)
    layer = quantized_networks.convolution(
        weight, signed=signed, stride=stride, padding=padding, groups=groups
    )
    low, high = layer.rule.lowest, layer.rule.highest
    size = data.draw(st.integers(kernel, 11))
    x = whole(data.draw(st.integers(1, 3)), groups * each, size, size, low=low, high=high, seed=1)
    assert_exact(layer, x.float())


@given(st.data())
@examples(12, suppress_health_check=[HealthCheck.too_slow])
def test_linear_layers_of_any_size_are_exact(data: st.DataObject) -> None:
    inner, columns = data.draw(st.integers(1, 200)), data.draw(st.integers(1, 70))
    layer = quantized_networks.linear(whole(columns, inner), signed=data.draw(st.booleans()))
    before = data.draw(st.lists(st.integers(1, 5), min_size=1, max_size=2))
    x = whole(*before, inner, low=layer.rule.lowest, high=layer.rule.highest, seed=1)
    assert_exact(layer, x.float())


@pytest.mark.parametrize("channels", [16, 32, 48])
def test_depthwise_convolutions_are_exact(channels: int) -> None:
    layer = quantized_networks.convolution(whole(channels, 1, 3, 3), padding=1, groups=channels)
    assert_exact(layer, whole(2, channels, 7, 7, seed=1).float())


# ---------------------------------------------------------------- hard numbers

HARD = {
    "all weights and activations at the end of their range": (-127, 127, 255.0, False),
    "all negative": (-127, -127, -128.0, True),
    "zero weights": (0, 0, 255.0, False),
    "zero activations": (-127, 127, 0.0, True),
}


@pytest.mark.parametrize("name", HARD)
def test_the_ends_of_the_ranges_are_exact(name: str) -> None:
    """Sums of 16 bits would saturate: 2 x 255 x 127 is more than 2^15."""
    low, high, value, signed = HARD[name]
    weight = torch.full((16, 64, 3, 3), high)
    weight[::2] = low
    x = torch.full((1, 64, 8, 8), value)
    assert_exact(quantized_networks.convolution(weight, signed=signed, padding=1), x)
    rows = torch.full((3, 64 * 9), value)
    assert_exact(quantized_networks.linear(weight.reshape(16, -1), signed=signed), rows)


@pytest.mark.parametrize("signed", [True, False])
def test_values_beyond_the_range_are_clipped(signed: bool) -> None:
    values = [1e-30, -1e-30, 126.5, 127.5, 254.5, 255.5, 1e4, -1e4, 3e9, -3e9, 1e38, -1e38]
    x = torch.tensor([values])
    assert_exact(quantized_networks.linear(torch.eye(len(values)).int(), signed=signed), x)


def test_of_two_equally_near_numbers_the_even_one_is_taken() -> None:
    x = torch.arange(-20, 20)[None] + 0.5
    assert_exact(quantized_networks.linear(torch.eye(40).int()), x)


@pytest.mark.parametrize("scale", [1e-30, 1 / 3, 0.1, 1e30])
def test_the_product_with_the_scale_is_float32s(scale: float) -> None:
    """Numbers on both sides of the middle by a rounding become those of float32's product."""
    middle = (np.arange(-100, 100) + 0.5) / np.float32(scale)
    near = [np.nextafter(np.float32(middle), np.float32(end)) for end in (-np.inf, np.inf)]
    x = torch.tensor(np.concatenate([np.float32(middle), *near]))[None]
    layer = quantized_networks.linear(torch.eye(x.shape[1]).int(), scale=scale)
    assert_exact(layer, x)


def test_an_outlier_channel_changes_no_other() -> None:
    weight = whole(8, 8, 1, 1)
    weight[3] = 0
    layer = quantized_networks.convolution(weight)
    layer.output_scale.copy_(torch.tensor([1.0, 1e6, 1e-6, 1, 1, 1, 1, 1]))
    x = whole(1, 8, 3, 3, seed=1).float()
    found = compute(lower(layer, x, "infer"))["0/output/0"]
    scale = layer.output_scale.double()[:, None, None]
    wanted = (sums(layer, x) * scale).numpy().astype(np.float32)
    np.testing.assert_array_equal(found, wanted)


# ---------------------------------------------------------------- a network


def test_a_network_is_right_and_fused() -> None:
    x = torch.randn(2, 3, 9, 9, generator=torch.Generator().manual_seed(0))
    network = lower(quantized_blocks(x), x, "infer")
    found = compute(network)
    layers = [node for node in network.graph.nodes if "quantized" in node.op]
    assert len(layers) == 4
    assert [node.keywords["activation"] is not None for node in layers] == [True, True, True, False]
    assert sum(node.keywords["residual"] is not None for node in layers) == 1
    assert not any("norm" in node.op for node in network.graph.nodes)
    with torch.no_grad():
        wanted = network.prepared.module(*network.prepared.batches[0].inputs)
    np.testing.assert_allclose(found["0/output/0"], wanted.numpy(), rtol=1e-4, atol=1e-5)


def test_an_error_in_a_weight_is_found_in_its_operation() -> None:
    """Of one unit in one of all weights: whole numbers are compared as such."""
    x = torch.randn(2, 3, 9, 9, generator=torch.Generator().manual_seed(0))
    network = lower(quantized_blocks(x), x, "infer")
    running = Running(network)
    name = next(name for name in running.state if name == "second.weight")
    running.state[name].flat[0] ^= 1
    running.execution.load(running._weight)
    running.point_at(0)
    found = steps_check(network, running.execution, running.execution.run_watched)
    assert [item.layer for item in found.wrong] == ["second"]


def test_a_cpu_without_vnni_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(refusing, "has_vnni", lambda: False)
    layer = nn.Sequential(quantized_networks.linear(whole(4, 4)))
    network = lower(layer, whole(2, 4).float(), "infer")
    with pytest.raises(Unsupported, match="without VNNI"):
        Running(network)
