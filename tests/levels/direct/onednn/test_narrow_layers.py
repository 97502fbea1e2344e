"""Linear layers with weights of 8 and 4 bits at `onednn`, against exact integer arithmetic."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given
from hypothesis import strategies as st
from torch import Tensor, nn

from golow.levels.direct.onednn.level import probe
from golow.lower.operators.narrow_linear import NarrowLinear
from golow.lower.recognise.narrow_layers import MOST_ROWS
from golow.records.quantization import QuantizationRule, QuantizedLayer
from golow.workload.quantization.int4_weights import Int4Linear
from golow.workload.quantization.quantized_layers import Quantized, QuantizedLinear
from support.direct.in_process import Network
from support.direct.onednn_in_process import Running, compute, lower
from support.direct.step_checks import steps_check
from support.examples import examples

pytestmark = pytest.mark.skipif(not probe().available, reason="oneDNN is not installed")

RULES: tuple[QuantizationRule, ...] = ("int8-weights", "int4-weights")


class Layer(nn.Module):
    """A layer with a shortcut and an activation."""

    def __init__(self, narrow: Quantized, shortcut: bool, relu: bool) -> None:
        super().__init__()
        self.narrow, self.shortcut, self.relu = narrow, shortcut, relu

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        """[..., C], [..., K] -> [..., K]"""
        found = self.narrow(x)
        found = found + y if self.shortcut else found
        return found.relu() if self.relu else found


def drawn(low: int, high: int, *shape: int, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(low, high + 1, shape, generator=generator)


def layer(rule: QuantizationRule, inner: int, columns: int, group: int, bias: bool) -> Quantized:
    """A layer of whole numbers, with scales that are powers of two: float32 is exact."""
    original = nn.Linear(inner, columns, bias=bias)
    described = QuantizedLayer(path="narrow", rule=rule, group=group)
    made: Quantized
    if rule == "int4-weights":
        made = Int4Linear(original, described)
        made.weight.copy_(drawn(0, 255, *made.weight.shape))
    else:
        made = QuantizedLinear(original, described)
        made.weight.copy_(drawn(-127, 127, columns, inner))
    made.output_scale.copy_(2.0 ** drawn(-3, 1, *made.output_scale.shape, seed=1))
    if bias:
        assert made.bias is not None
        made.bias.data = drawn(-50, 50, columns, seed=2).float()
    return made


def numbers_of(made: Quantized) -> Tensor:
    """The weight in float64, unpacked by integer arithmetic."""
    if isinstance(made, Int4Linear):
        numbers = torch.cat([made.weight & 15, made.weight >> 4], 2).long() - 8
        return (numbers * made.output_scale.double()).flatten(1)
    return made.weight.double() * made.output_scale.double()[:, None]


def lowered(module: Layer, rows: tuple[int, ...], inner: int, columns: int) -> Network:
    x, y = drawn(-60, 60, *rows, inner, seed=3), drawn(-60, 60, *rows, columns, seed=4)
    return lower(module.eval(), (x.float(), y.float()), "infer")


@pytest.mark.parametrize("generates", [True, False])
@given(data=st.data())
@examples(12, suppress_health_check=[HealthCheck.too_slow])
def test_layers_of_any_size_are_exact(generates: bool, data: st.DataObject) -> None:
    """Tiny groups too, and what fills no vector. Without a compiler, by the library."""
    rule = data.draw(st.sampled_from(RULES))
    group = data.draw(st.sampled_from((2, 6, 32, 64, 128)))
    inner = data.draw(st.integers(1, 9)) * (group if rule == "int4-weights" else 13)
    columns, bias = data.draw(st.integers(1, 40)), data.draw(st.booleans())
    shortcut, relu = data.draw(st.booleans()), data.draw(st.booleans())
    rows = data.draw(st.sampled_from(((1,), (2,), (3,), (2, 3), (7,), (8,))))
    module = Layer(layer(rule, inner, columns, group, bias), shortcut, relu)
    network = lowered(module, rows, inner, columns)
    assert sum(node.op == NarrowLinear.op() for node in network.graph.nodes) == 1
    found = compute(network, generates=generates)["0/output/0"]
    x, y = (item.double() for item in network.prepared.batches[0].inputs)
    wanted = x @ numbers_of(module.narrow).T
    wanted = wanted if module.narrow.bias is None else wanted + module.narrow.bias.double()
    wanted = wanted + y if shortcut else wanted
    wanted = wanted.relu() if relu else wanted
    np.testing.assert_array_equal(found, wanted.detach().numpy().astype(np.float32))


@pytest.mark.parametrize("rule", RULES)
def test_many_rows_read_float32(rule: QuantizationRule) -> None:
    """Which is made once: an iteration has one product and nothing else."""
    module = Layer(layer(rule, 128, 8, 32, bias=True), shortcut=False, relu=True)
    network = lowered(module, (MOST_ROWS + 1,), 128, 8)
    assert all(node.op != NarrowLinear.op() for node in network.graph.nodes)
    steps = [step for step in Running(network).built.plan.steps if not step.once]
    assert [step.operation for step in steps] == ["linear"]
    found = compute(network)["0/output/0"]
    x = network.prepared.batches[0].inputs[0].double()
    assert module.narrow.bias is not None
    wanted = (x @ numbers_of(module.narrow).T + module.narrow.bias.double()).relu()
    np.testing.assert_array_equal(found, wanted.detach().numpy().astype(np.float32))


@pytest.mark.parametrize(("rule", "bytes_of_a_weight"), [(RULES[0], 1.0), (RULES[1], 0.5)])
def test_the_step_reads_the_narrow_weight(rule: QuantizationRule, bytes_of_a_weight: float) -> None:
    module = Layer(layer(rule, 512, 256, 64, bias=False), shortcut=False, relu=False)
    built = Running(lowered(module, (1,), 512, 256)).built
    [step] = [step for step in built.plan.steps if not step.once]
    assert max(operand.bytes for operand in step.reads) == 512 * 256 * bytes_of_a_weight


@pytest.mark.parametrize("rule", RULES)
def test_an_error_in_a_weight_is_found(rule: QuantizationRule) -> None:
    module = Layer(layer(rule, 64, 8, 32, bias=False), shortcut=False, relu=False)
    network = lowered(module, (2,), 64, 8)
    running = Running(network)
    running.point_at(0)
    assert not steps_check(network, running.execution, running.execution.run_watched).wrong
    running.state["narrow.weight"].flat[5] ^= 4
    running.execution.load(running._weight)
    found = steps_check(network, running.execution, running.execution.run_watched)
    assert [item.layer for item in found.wrong] == ["narrow"]


class Swapped(Int4Linear):
    """The other half of a group is in the low bits."""

    def forward(self, x: Tensor) -> Tensor:
        """[..., C] -> [..., K]"""
        pairs = self.weight.to(x.dtype)
        high = torch.floor(pairs * 0.0625)
        numbers = torch.cat([high, pairs - high * 16], 2) - 8
        return nn.functional.linear(x, (numbers * self.output_scale).flatten(1))


def test_another_order_of_numbers_is_not_mistaken() -> None:
    rule = QuantizedLayer(path="narrow", rule="int4-weights", group=32)
    other = Swapped(nn.Linear(64, 8, bias=False), rule)
    other.weight.copy_(drawn(0, 255, *other.weight.shape))
    network = lowered(Layer(other, shortcut=False, relu=False), (2,), 64, 8)
    assert all(node.op != NarrowLinear.op() for node in network.graph.nodes)
