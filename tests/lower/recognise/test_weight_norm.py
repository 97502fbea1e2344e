"""Weight normalisation in training at `cudnn`: what is kept whole and joined, what its plan moves,
and that the check of operations knows it. Whole steps are in test_step_on_host.py."""

from __future__ import annotations

from collections import Counter
from functools import cache
from typing import TYPE_CHECKING, cast

import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils.parametrizations import weight_norm

from golow.check.rounding import FLOAT32
from golow.check.step_rule import judged, summary
from golow.check.step_values import step_values
from golow.levels.direct.cudnn.planning import build_plan
from golow.levels.direct.cudnn.problems.precision import TYPES
from golow.lower.fuse.common_subexpressions import merge_equal_nodes
from golow.lower.fuse.horizontal_weight_norms import MOST, join_weight_norms
from golow.lower.ir.graph import Graph
from golow.lower.operators.weight_norm import WeightNorm, WeightNormBackward
from golow.lower.recognise.weight_norm import keep_weight_norm
from golow.records.workload import Precision
from support.direct.cudnn_plans import AskedEngines, assert_sound
from support.direct.step_checks import level_values
from support.graphs.lowering import Case, records

if TYPE_CHECKING:
    from golow.levels.direct.cudnn.engines.engines import Engines

KEPT = (keep_weight_norm, merge_equal_nodes, join_weight_norms)


class Vocoder(nn.Module):
    """A generator as HiFi-GAN's, of few channels, and a linear layer."""

    def __init__(self) -> None:
        super().__init__()
        self.before = weight_norm(nn.Conv1d(8, 16, 7, padding=3))
        self.up = weight_norm(nn.ConvTranspose1d(16, 8, 4, 2, padding=1))
        self.blocks = nn.ModuleList(
            weight_norm(nn.Conv1d(8, 8, 3, dilation=d, padding=d)) for d in (1, 3)
        )
        self.after = weight_norm(nn.Linear(8, 2))

    def forward(self, x: Tensor) -> Tensor:
        x = self.up(nn.functional.leaky_relu(self.before(x), 0.1))
        for block in self.blocks:
            x = x + block(nn.functional.leaky_relu(x, 0.1))
        return self.after(x.mean(2))


@cache
def vocoder() -> Case:
    torch.manual_seed(0)
    return Case(Vocoder(), torch.randn(2, 8, 6), mode="train")


@cache
def lowered() -> Graph:
    """Every pass keeps what the graph computes."""
    return vocoder().after(*vocoder().direct_passes()["cudnn"])


def layers(graph: Graph) -> tuple[list[int], list[int]]:
    """How many layers each node has, forward and backward."""
    return tuple(  # type: ignore[return-value]
        [len(record.v) for record in records(graph, kind)]
        for kind in (WeightNorm, WeightNormBackward)
    )


# ---------------------------------------------------------------- the passes


def test_the_layers_of_a_network_are_one_operator_in_each_direction() -> None:
    assert layers(lowered()) == ([5], [5])


@pytest.mark.parametrize("dim", [None, 1])
def test_norms_of_other_axes_are_unfolded(dim: int | None) -> None:
    module = weight_norm(nn.Linear(4, 2), dim=dim)
    assert layers(Case(module, torch.randn(2, 4), mode="train").lowered("cudnn")) == ([], [])


def test_as_many_layers_are_joined_as_a_launch_takes() -> None:
    module = nn.Sequential(*(weight_norm(nn.Linear(2, 2)) for _ in range(MOST + 2)))
    graph = Case(module, torch.randn(2, 2), mode="train").after(*KEPT)
    assert layers(graph) == ([MOST, 2], [MOST, 2])


def test_gradients_that_are_read_early_are_not_joined() -> None:
    """A layer that runs three times has one weight. The sum of two of its gradients comes before
    the third."""

    class Three(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = weight_norm(nn.Linear(2, 2))

        def forward(self, x: Tensor) -> Tensor:
            return self.layer(self.layer(self.layer(x).tanh()).tanh())

    graph = Case(Three(), torch.randn(2, 2), mode="train").after(*KEPT)
    assert layers(graph) == ([1], [2, 1])


# ---------------------------------------------------------------- the plan


@pytest.mark.parametrize("precision", ["default", "bf16"])
def test_weights_take_one_launch_and_their_gradients_another(precision: Precision) -> None:
    """Convolutions read weights, and their gradients are read, where they are written."""
    made = build_plan(lowered(), cast("Engines", AskedEngines()), TYPES[precision], 1)
    assert_sound(made)
    found = Counter(step.operation for step in made.plan.steps)
    assert (found["weight_norm"], found["weight_norm_backward"]) == (1, 1)
    forward, backward = (
        next(step for step in made.plan.steps if step.operation == name)
        for name in ("weight_norm", "weight_norm_backward")
    )
    written = {operand.buffer for operand in (*forward.writes, *backward.writes)}
    read = {operand.buffer for operand in backward.reads}
    moves = [step for step in made.plan.steps if step.operation in ("copy", "reshape", "turn")]
    assert not [s for s in moves if written.intersection(o.buffer for o in s.reads)]
    assert not [s for s in moves if read.intersection(o.buffer for o in s.writes)]


# ---------------------------------------------------------------- the check of operations


@pytest.mark.parametrize("fault", ["", "weights", "gradients"])
def test_a_row_with_a_wrong_norm_is_found(fault: str) -> None:
    """One row of one layer is a hundredth too long."""
    graph = vocoder().after(*KEPT)
    kind = WeightNorm if fault == "weights" else WeightNormBackward
    node = next(node for node in graph.nodes if node.op == kind.op())
    planted = node.outputs[2]
    assert planted is not None

    def stored(name: str, right: Tensor) -> Tensor:
        made = right.float() if right.is_floating_point() else right
        if fault and name == planted.name:
            made[0] *= 1.01
        return made

    inputs = {item.value.name: vocoder().values[item.kind, item.target] for item in graph.inputs}
    values = level_values(graph, inputs, stored)
    items = step_values(graph, inputs, lambda _, name: values.get(name))
    check = summary(judged(item, FLOAT32, "float32") for item in items)
    assert [wrong.value for wrong in check.wrong] == ([planted.name] if fault else [])
