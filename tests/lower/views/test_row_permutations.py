"""Rows that are put in order before a linear layer, in the copy that its operand needs anyway."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, cast

import pytest
import torch
from torch import Tensor, nn

from golow.levels.direct.cudnn.passes import passes
from golow.levels.direct.cudnn.planning import build_plan
from golow.levels.direct.cudnn.problems.precision import TYPES
from golow.lower.fuse.epilogue_fusion import fuse_residual
from golow.lower.ir.clean_up import CLEAN_UP, eliminate_dead_code
from golow.lower.ir.graph import Graph
from golow.lower.ir.pass_runner import apply
from golow.lower.operators.linear import Linear
from golow.lower.recognise.rolls import name_rolls
from golow.lower.to_vocabulary import CANONICAL
from golow.lower.views.row_permutations import order_rows_first
from support.direct import onednn_in_process
from support.direct.cuda_on_cpu import follow
from support.direct.cudnn_plans import AskedEngines, assert_sound
from support.direct.in_process import assert_right
from support.graphs.lowering import Case, count, records

if TYPE_CHECKING:
    from golow.levels.direct.cudnn.engines.engines import Engines


Function = Callable[[nn.Linear, Tensor], Tensor]


class Block(nn.Module):
    """What a block of Swin does after its attention: heads [windows of 4, 2 heads, 2x2, 4] are
    joined, projected, become images of 4x4 again, and are added to the input."""

    def __init__(self, after: Function) -> None:
        super().__init__()
        self.after, self.layer = after, nn.Linear(8, 8)

    def forward(self, x: Tensor) -> Tensor:
        heads = x.sin().view(4, 2, 4, 4)
        return self.after(self.layer, heads.transpose(1, 2).reshape(4, 4, 8)) + x


def images(windows: Tensor) -> Tensor:
    return windows.view(1, 2, 2, 2, 2, 8).transpose(2, 3).reshape(1, 4, 4, 8)


MOVED: dict[str, Function] = {
    "windows": lambda layer, x: images(layer(x)),
    "rolled": lambda layer, x: images(layer(x)).roll((1, 1), (1, 2)),
    "activated": lambda layer, x: images(layer(x).relu()),
}
LEFT: dict[str, Function] = {
    "features too": lambda layer, x: layer(x).transpose(1, 2).reshape(1, 4, 4, 8),
    "a roll of features": lambda layer, x: layer(x).roll(1, 2).view(1, 4, 4, 8),
    "no move": lambda layer, x: layer(x).view(1, 4, 4, 8),
    "read as it lies": lambda layer, x: images(layer(x.cos())),
    "read twice": lambda layer, x: images(y := layer(x)) + y.view(1, 4, 4, 8),
}


def case(after: Function) -> Case:
    torch.manual_seed(0)
    return Case(Block(after), torch.randn(1, 4, 4, 8))


def ordered(of: Case) -> Graph:
    """The graph after the pass; it means what it meant before."""
    named = (*CANONICAL, name_rolls, eliminate_dead_code)
    return of.after(*named, order_rows_first, fuse_residual)


@pytest.mark.parametrize("name", MOVED)
def test_rows_come_in_order_before_the_layer(name: str) -> None:
    [layer] = records(graph := ordered(case(MOVED[name])), Linear)
    made = graph.nodes[-1] if name == "activated" else next(n for n in graph.nodes if Linear.of(n))
    assert made.outputs[0] is not None and made.outputs[0].shape == (1, 4, 4, 8)
    assert (layer.residual is None) == (name == "activated")


@pytest.mark.parametrize("name", LEFT)
def test_others_stay(name: str) -> None:
    graph = ordered(case(LEFT[name]))
    assert records(graph, Linear)[0].residual is None
    assert count(graph, Linear) == 1


@pytest.mark.parametrize("name", ["windows", "rolled"])
def test_the_plan_copies_once_at_most(name: str) -> None:
    of = case(MOVED[name])
    graph = apply(of.after(*CLEAN_UP), passes(of.workload))
    engines = cast("Engines", AskedEngines())
    made = build_plan(graph, engines, TYPES["bf16"], 1)
    assert_sound(made)
    rolled = ["roll"] if name == "rolled" else []  # a function writes its rows in any order
    steps = [step.operation for step in made.plan.steps if step.operation != "fetch"]
    assert steps == ["fused", *rolled, "linear"]
    tensors = {i.value.name: of.values[i.kind, i.target].detach() for i in graph.inputs}
    follow(graph, engines, tensors)


@pytest.mark.parametrize("name", [*MOVED, *LEFT])
def test_onednn_computes_what_torch_does(name: str) -> None:
    every = {**MOVED, **LEFT}
    torch.manual_seed(0)
    network = onednn_in_process.lower(Block(every[name]).eval(), torch.randn(1, 4, 4, 8), "infer")
    assert_right(network, onednn_in_process.compute(network))
    adds = sum(layer.residual is not None for layer in records(network.graph, Linear))
    assert adds == (name == "windows")  # a roll is slices and a concatenation there
