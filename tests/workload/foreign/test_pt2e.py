"""Graphs as PT2E's convert step leaves them: the same numbers and scales in golow's layers. The
networks here make these calls themselves, so that the tests need no quantiser."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

import golow
from golow.check.limits_of_flips import rounds_activations
from golow.records.errors import GolowError
from golow.workload.prepare import prepare
from golow.workload.program import register_calls_of_pt2e
from golow.workload.quantization.foreign.adopted import adopted
from golow.workload.quantization.foreign.pt2e import RoundedValues
from golow.workload.quantization.quantized_layers import Quantized
from golow.workload.request import Request

register_calls_of_pt2e()
CALLS = torch.ops.quantized_decomposed
IMAGES, HIDDEN, ALL = (0.05, 100, 0, 255), (0.03, -128, -128, 127), (0.01, 3, -128, 127)
"""Scale, zero point and range: of unsigned numbers with a zero point, of what is never negative in
signed numbers, and of any values."""


def on_grid(x: Tensor, scale: float, zero: int, low: int, high: int) -> Tensor:
    """A tensor that is rounded and taken back."""
    dtype = torch.int8 if low < 0 else torch.uint8
    rounded = CALLS.quantize_per_tensor(x, scale, zero, low, high, dtype)
    found: Tensor = CALLS.dequantize_per_tensor(rounded, scale, zero, low, high, dtype)
    return found


class Network(nn.Module):
    """Two layers that read one tensor, a sum, a pooling on the grid, and a head. zero: of the
    head's weight."""

    def __init__(self, zero: int = 0) -> None:
        super().__init__()
        draw = torch.Generator().manual_seed(0)
        shapes = {"first": (8, 3, 3, 3), "other": (8, 3, 3, 3), "head": (5, 8)}
        for name, shape in shapes.items():
            numbers = torch.randint(-127, 128, shape, generator=draw, dtype=torch.int8)
            self.register_buffer(name, numbers)
            self.register_buffer(f"{name}_scale", torch.rand(shape[0], generator=draw) * 0.01)
            self.register_buffer(f"{name}_zero", torch.zeros(shape[0], dtype=torch.long) + zero)
        self.bias = nn.Parameter(torch.randn(8, generator=draw))

    def weight(self, name: str) -> Tensor:
        """The numbers taken back."""
        parts = (self.get_buffer(f"{name}{part}") for part in ("", "_scale", "_zero"))
        found: Tensor = CALLS.dequantize_per_channel(*parts, 0, -127, 127, torch.int8)
        return found

    def forward(self, x: Tensor) -> Tensor:
        """[N, 3, H, W] -> [N, 5]"""
        x = on_grid(x, *IMAGES)
        y = functional.conv2d(x, self.weight("first"), self.bias, padding=1)
        y = y + functional.conv2d(x, self.weight("other"), padding=1)
        y = on_grid(functional.relu(y), *HIDDEN)
        y = on_grid(functional.max_pool2d(y, 2), *HIDDEN).amax((2, 3))
        return on_grid(functional.linear(on_grid(y, *ALL), self.weight("head")), *ALL)


def inputs() -> Tensor:
    return torch.randn(4, 3, 8, 8, generator=torch.Generator().manual_seed(1))


@pytest.fixture(scope="module")
def program() -> torch.export.ExportedProgram:
    return torch.export.export(Network().eval(), (inputs(),))


def test_a_graph_becomes_golows_layers(program: torch.export.ExportedProgram) -> None:
    module = program.module()
    wanted = module(inputs())
    made = adopted(module)
    torch.testing.assert_close(made(inputs()), wanted, rtol=0, atol=0.01 + 1e-5)  # one unit
    assert float(((made(inputs()) - wanted).abs() > 1e-5).float().mean()) < 0.2
    layers = {name: x for name, x in made.named_modules() if isinstance(x, Quantized)}
    rules = [layer.rule for layer in layers.values()]
    assert [(rule.rule, rule.limits, rule.signed) for rule in rules] == [
        ("int8", (-100, 155), True), ("int8", (-100, 155), True), ("int8", (-131, 124), True),
    ]  # fmt: skip
    first, other, _ = layers.values()
    assert rules[1].like == rules[0].path and first.input_scale is other.input_scale
    rounded = [x.rule for x in made.modules() if isinstance(x, RoundedValues)]
    assert [(rule.limits, rule.signed) for rule in rounded] == [
        (None, False), (None, False), ((-131, 124), True),
    ]  # fmt: skip
    assert "first" not in made.state_dict() and "quantized_decomposed" not in made.code
    assert "quantized_decomposed" in module.code  # the user's own stays


def test_the_numbers_and_scales_are_those_of_the_graph() -> None:
    made = adopted(torch.export.export(Network().eval(), (inputs(),)).module())
    original = Network()
    layers = [x for x in made.modules() if isinstance(x, Quantized)]
    for layer, name, given in zip(
        layers, ("first", "other", "head"), (IMAGES, IMAGES, ALL), strict=True
    ):
        assert torch.equal(layer.weight, original.get_buffer(name))
        assert layer.input_scale is not None
        assert float(layer.input_scale) == float(torch.tensor(1 / given[0]))
        wanted = original.get_buffer(f"{name}_scale").double() * given[0]
        assert torch.equal(layer.output_scale, wanted.float())


def test_a_file_is_the_quantised_network(
    program: torch.export.ExportedProgram, tmp_path: Path
) -> None:
    file = tmp_path / "quantised.pt2"
    torch.export.save(program, file)
    prepared = prepare(Request(str(file)))
    assert len(prepared.workload.source.quantized) == 3
    assert rounds_activations(prepared.workload)  # so that the check allows for what they decide
    compiled = golow.compile(prepared.module, inputs(), level="onednn", quiet=True)
    with torch.no_grad():
        wanted = prepared.module(inputs())
        torch.testing.assert_close(compiled(inputs()), wanted, rtol=0, atol=0.011)


class Doubled(Network):
    """Rounds something that it never takes back."""

    def forward(self, x: Tensor) -> Tensor:
        """[N, 3, H, W] -> [N, 3, H, W]"""
        return CALLS.quantize_per_tensor(x, *IMAGES, torch.uint8).float()


@pytest.mark.parametrize(
    ("network", "message"),
    [
        (Network(zero=1), "dequantize_per_channel.default for aten.conv2d"),
        (Doubled(), "quantize_per_tensor"),
    ],
)
def test_what_golow_cannot_express_is_refused(network: nn.Module, message: str) -> None:
    module = torch.export.export(network.eval(), (inputs(),)).module()
    with pytest.raises(GolowError, match=message) as raised:
        golow.compile(module, inputs(), level="onednn", quiet=True)
    assert "symmetric" in str(raised.value)
