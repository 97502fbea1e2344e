"""Functions of elements that the backward pass computes again: the same numbers, less memory."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn import functional

from golow.levels.direct.cudnn.build.builder import Builder
from golow.levels.direct.cudnn.build.finish_training import finish
from golow.levels.direct.cudnn.passes import passes
from golow.levels.direct.cudnn.planning import implemented
from golow.levels.direct.cudnn.problems.precision import TYPES
from golow.lower.fuse.pointwise_fusion import group_elements
from golow.lower.fuse.rematerialisation import recompute
from golow.lower.ir.clean_up import CLEAN_UP
from golow.lower.ir.graph import Graph
from golow.lower.ir.pass_runner import apply
from golow.lower.ir.verify import interpret, verify
from golow.lower.operators.fused import Fused
from golow.lower.operators.recurrence import RecurrenceBackward
from support.direct.cudnn_plans import AskedEngines
from support.examples import examples
from support.graphs.drawn_values import drawn
from support.graphs.lowering import Case
from support.models.recurrent_networks import Recurrences

if TYPE_CHECKING:
    from golow.levels.direct.cudnn.engines.engines import Engines

FUNCTIONS = {
    "gelu": functional.gelu,
    "silu": functional.silu,
    "scaled": lambda x: x * 0.5 + 1,
    "turned": lambda x: x.transpose(1, 2).tanh().transpose(1, 2),
    "split": lambda x: torch.cat([x[..., 8:].sigmoid(), x[..., :8].cos()], -1),
    "heads": lambda x: x.unflatten(-1, (4, 4)).transpose(1, 2).exp().transpose(1, 2).flatten(2),
    "squared": lambda x: x * x,
}


class Layers(nn.Module):
    """Linear layers with functions between them, residual or not."""

    def __init__(self, names: list[str], residual: bool = False) -> None:
        super().__init__()
        self.names, self.residual = names, residual
        self.layers = nn.ModuleList(nn.Linear(16, 16) for _ in names)

    def forward(self, x: Tensor) -> Tensor:
        for name, layer in zip(self.names, self.layers, strict=True):
            made = FUNCTIONS[name](layer(x))
            x = x + made if self.residual else made
        return x.mean(1)


class Scaled(nn.Module):
    """A function of a parameter, which the step changes, between two layers."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(16, 16), nn.Linear(16, 16)
        self.scale = nn.Parameter(torch.rand(16))

    def forward(self, x: Tensor) -> Tensor:
        return self.second(torch.tanh(self.first(x)) * self.scale).mean(1)


def grouped(module: nn.Module) -> Graph:
    case = Case(module, torch.randn(2, 6, 16), mode="train")
    return group_elements(apply(apply(case.graph, CLEAN_UP), passes(case.workload)))


def again(graph: Graph) -> list[str]:
    """The groups that the backward pass computes again."""
    return [n.name for n in graph.nodes if n.op == Fused.op() and n.name.endswith("_again")]


def arena(graph: Graph) -> int:
    engines = cast("Engines", AskedEngines())
    made = Builder(graph, engines, TYPES["default"], 1).build(implemented(), finish)
    return made.plan.sizes["arena"]


@pytest.mark.slow
@examples(12)
@given(
    names=st.lists(st.sampled_from(sorted(FUNCTIONS)), min_size=1, max_size=4),
    residual=st.booleans(),
)
def test_the_results_are_the_same_bit_for_bit(names: list[str], residual: bool) -> None:
    torch.manual_seed(0)
    before = grouped(Layers(names, residual))
    after = verify(recompute(before))
    given = {item.value.name: drawn(item.value) for item in before.inputs}
    wanted, found = interpret(before, given), interpret(after, given)
    assert wanted.keys() == found.keys()
    for name, tensor in wanted.items():
        torch.testing.assert_close(found[name], tensor, rtol=0, atol=0, equal_nan=True, msg=name)


@pytest.mark.parametrize("name", ["gelu", "silu", "squared"])
def test_what_a_function_returns_is_not_kept(name: str) -> None:
    before = grouped(Layers([name] * 3))
    after = recompute(before)
    assert len(again(after)) >= 2
    assert arena(after) < arena(before)


def test_what_the_step_changes_is_not_read_again() -> None:
    before = grouped(Scaled())
    assert again(recompute(before)) == []


@pytest.mark.slow
def test_what_a_library_reads_again_stays_where_it_is() -> None:
    """Computed again elsewhere, a layer's input would be free after the forward pass, and the sum
    behind the layer would be written over it."""
    before = grouped(Recurrences(4))
    after = verify(recompute(before))
    read, found = (
        [layer.x for node in graph.nodes if (layer := RecurrenceBackward.of(node))]
        for graph in (before, after)
    )
    assert len(read) == 4
    assert found == read


def test_inference_stays_as_it_is() -> None:
    case = Case(Layers(["gelu"]), torch.randn(2, 6, 16))
    graph = group_elements(apply(apply(case.graph, CLEAN_UP), passes(case.workload)))
    assert recompute(graph) == graph
