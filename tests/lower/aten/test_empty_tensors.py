"""What has no elements is left out before a level sees it."""

from __future__ import annotations

import msgspec
import pytest
import torch
from torch import Tensor, nn

from golow.lower.aten.empty_tensors import leave_out_empty
from golow.lower.ir.verify import interpret, verify
from golow.lower.operators.concatenate import Concatenate
from golow.lower.operators.expand import Expand
from golow.lower.operators.fill import Fill
from golow.lower.operators.linear import Linear
from golow.lower.operators.matrix_product import MatrixProduct
from golow.lower.operators.pad import Pad
from golow.lower.operators.reduce import Reduce
from golow.lower.operators.slice import Slice
from golow.records.workload import Mode
from support.direct.cudnn_plans import assert_sound, built
from support.graphs.lowering import Case, assert_close, count
from support.graphs.written_graphs import RELU, Written, activate, add, numbers, one, ref

NOTHING = Slice(x=ref("x"), axis=1, start=4, stop=4, step=1)


def after(*nodes: tuple[str, object]) -> list[str]:
    """The operations that are left of a graph that ends with y; it computes the same."""
    case = Written({"x": numbers(3, 4)}, [one("nothing", NOTHING), *nodes], "y")  # type: ignore[list-item]
    graph = verify(leave_out_empty(case.graph))
    assert_close(interpret(graph, case.given), interpret(case.graph, case.given), "after")
    assert not any(0 in value.shape for value in graph.values().values())
    return [node.op for node in graph.nodes]


def test_parts_without_elements_are_not_joined() -> None:
    both = Concatenate(parts=(ref("x"), ref("nothing"), ref("x")), axis=1)
    assert after(one("y", both)) == [Concatenate.op()]


def test_the_only_part_with_elements_is_the_whole() -> None:
    alone = Concatenate(parts=(ref("nothing"), ref("x")), axis=1)
    again = Concatenate(parts=(ref("joined"), ref("nothing")), axis=1)
    function = activate("again", RELU)
    assert after(one("joined", alone), one("again", again), one("y", function)) == [function.op()]


def test_what_is_computed_of_nothing_is_a_number() -> None:
    padded = Pad(x=ref("half"), before=(0, 1), after=(0, 3), value=2.0)
    assert after(one("half", add("nothing", 1.0)), one("y", padded)) == [Fill.op(), Expand.op()]
    total = Reduce(function="sum", x=ref("nothing"), axes=(1,), keep=False)
    assert after(one("y", total)) == [Fill.op(), Expand.op()]


def test_products_of_nothing_are_zero_or_the_bias() -> None:
    rows = one("none", Slice(x=ref("x"), axis=0, start=3, stop=3, step=1))
    product = MatrixProduct(a=ref("nothing"), b=ref("none"))
    assert after(rows, one("y", product)) == [Fill.op(), Expand.op()]
    linear = Linear(x=ref("nothing"), weight=ref("nothing"))
    assert after(one("y", linear)) == [Fill.op(), Expand.op()]
    bias = one("bias", Reduce(function="sum", x=ref("x"), axes=(1,), keep=False))
    linear = msgspec.structs.replace(linear, bias=ref("bias"))
    assert after(bias, one("y", linear)) == [Reduce.op(), Expand.op()]


class Rotary(nn.Module):
    """Turns the first channels of all; here there are no others."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.turned = nn.Linear(6, 6), 6

    def forward(self, x: Tensor) -> Tensor:
        x = self.layer(x)
        turned, left = x[..., : self.turned], x[..., self.turned :]
        return torch.cat([turned.roll(3, -1) * turned.sin(), left], -1)


@pytest.mark.parametrize("mode", ["infer", "train"])
def test_rotary_positions_of_all_channels_have_a_plan(mode: Mode) -> None:
    assert_sound(built(Rotary(), mode, "bf16", 4, 6)[0])
    lowered = Case(Rotary(), torch.randn(4, 6), mode=mode).lowered("cudnn")
    assert not count(lowered, Concatenate) or mode == "train"


class Unused(nn.Module):
    """Has a parameter without elements, as vision transformers without registers have."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.registers = nn.Linear(6, 6), nn.Parameter(torch.zeros(1, 0, 6))

    def forward(self, x: Tensor) -> Tensor:
        registers = self.registers.expand(len(x), -1, -1)
        return self.layer(torch.cat([registers, x[:, None]], 1)).sum(1)


def test_a_parameter_without_elements_is_kept_and_updated() -> None:
    case = Case(Unused(), torch.randn(4, 6), mode="train")
    graph = case.lowered("onednn")
    assert_close(case.run(graph), case.run(case.graph), "lowered")
    assert "registers" in {item.target for item in graph.inputs if item.kind == "parameter"}
    assert_sound(built(Unused(), "train", "bf16", 4, 6)[0])
