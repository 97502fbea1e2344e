"""torchao's tensors as golow's layers: the same results as torchao's own."""

from __future__ import annotations

import copy
from collections.abc import Callable
from importlib.util import find_spec
from typing import Any

import pytest
import torch
from torch import nn

import golow
from golow.records.errors import GolowError
from golow.records.quantization import QuantizationRule
from golow.workload.quantization.foreign.adopted import adopted
from golow.workload.quantization.quantized_layers import Quantized

if find_spec("torchao") is None:
    pytest.skip("torchao is not installed", allow_module_level=True)

from torchao import quantization
from torchao.quantization.granularity import PerAxis, PerGroup

BY_ROW, BY_GROUP = PerAxis(0), PerGroup(32)
Made = Callable[[], Any]


def quantized(config: Any) -> nn.Module:
    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(128, 64), nn.ReLU(), nn.Linear(64, 10)).eval()
    quantization.quantize_(module, config)
    return module


@pytest.mark.parametrize(
    ("make", "rule"),
    [
        (lambda: quantization.Int8WeightOnlyConfig(), "int8-weights"),
        (lambda: quantization.Float8WeightOnlyConfig(), "fp8-weights"),
        (lambda: quantization.IntxWeightOnlyConfig(torch.int8, BY_ROW), "int8-weights"),
        (lambda: quantization.IntxWeightOnlyConfig(torch.int4, BY_GROUP), "int4-weights"),
        (lambda: quantization.IntxWeightOnlyConfig(torch.int4, BY_ROW), "int4-weights"),
    ],
)
def test_numbers_and_scales_are_torchaos(make: Made, rule: QuantizationRule) -> None:
    module, x = quantized(make()), torch.randn(3, 128)
    before = copy.deepcopy(module)
    made = adopted(module)
    layers = [layer for layer in made.modules() if isinstance(layer, Quantized)]
    assert [layer.rule.rule for layer in layers] == [rule] * 2
    with torch.no_grad():
        torch.testing.assert_close(made(x), before(x), rtol=1e-5, atol=1e-6)
        compiled = golow.compile(module, x, level="onednn", quiet=True)
        torch.testing.assert_close(compiled(x), before(x), rtol=1e-5, atol=1e-6)
    assert type(module.get_submodule("0")) is nn.Linear  # the caller's own stays


def test_zero_points_of_4_bits_are_taken() -> None:
    module = quantized(quantization.IntxWeightOnlyConfig(torch.int4, BY_GROUP))
    weight: Any = module.get_submodule("0").weight
    weight.zero_point.copy_(torch.randint(-8, 8, weight.zero_point.shape))
    made, x = adopted(module), torch.randn(3, 128)
    assert made.get_submodule("0").rule.zeros and not made.get_submodule("2").rule.zeros
    with torch.no_grad():
        torch.testing.assert_close(made(x), module(x), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: quantization.Int8DynamicActivationInt8WeightConfig(), "at run time"),
        (
            lambda: quantization.IntxWeightOnlyConfig(torch.int8, BY_GROUP),
            "8-bit weights have a scale for each 32 inputs",
        ),
    ],
)
def test_what_no_rule_expresses_is_refused(make: Made, message: str) -> None:
    with pytest.raises(GolowError, match=message):
        golow.compile(quantized(make()), torch.randn(3, 128), level="onednn", quiet=True)


def test_groups_of_an_odd_size_are_refused() -> None:
    module = nn.Sequential(nn.Linear(39, 4)).eval()
    quantization.quantize_(module, quantization.IntxWeightOnlyConfig(torch.int4, PerGroup(13)))
    with pytest.raises(GolowError, match="4-bit weights have groups of 13 inputs, an odd number"):
        adopted(module)


def test_a_graph_of_pt2e_is_read() -> None:
    from torchao.quantization.pt2e import quantize_pt2e
    from torchao.quantization.pt2e.quantizer import x86_inductor_quantizer as x86

    x = torch.randn(4, 3, 8, 8)
    network = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Flatten(), nn.Linear(288, 5)).eval()
    quantizer = x86.X86InductorQuantizer()
    quantizer.set_global(x86.get_default_x86_inductor_quantization_config())
    graph = quantize_pt2e.prepare_pt2e(torch.export.export(network, (x,)).module(), quantizer)
    graph(x)
    graph = quantize_pt2e.convert_pt2e(graph)
    compiled = golow.compile(graph, x, level="onednn", quiet=True)
    with torch.no_grad():
        torch.testing.assert_close(compiled(x), graph(x), rtol=0, atol=1e-5)
