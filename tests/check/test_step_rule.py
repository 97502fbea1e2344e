"""The check of single operations: every planted fault is found where it was planted, and what is
right passes."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import msgspec
import numpy as np
import pytest
import torch
from torch import Tensor, nn

from golow.check.rounding import BF16, TF32
from golow.check.step_rule import judged, summary
from golow.check.step_values import step_values
from golow.levels.direct.watched_values import Watch
from golow.lower.ir.graph import Graph
from golow.lower.ir.operator import is_view
from golow.lower.operators.layer_norm import LayerNorm
from golow.lower.operators.max_pool import MaxPool
from golow.records.comparison import StepsCheck
from golow.records.workload import Mode
from support.direct.in_process import graph_inputs
from support.direct.onednn_in_process import Running, lower
from support.direct.step_checks import level_values, steps_check
from support.models.deep import Deep
from support.plants.planted_steps import PLANTS, Plant, under_plant

WIDTH = 32


class Pooled(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.norm = nn.Conv2d(3, 16, 3, padding=1), nn.BatchNorm2d(16)
        self.second, self.head = nn.Conv2d(16, 16, 3), nn.Linear(16, 10)

    def forward(self, x: Tensor) -> Tensor:
        x = nn.functional.max_pool2d(self.norm(self.first(x)).relu(), 2)
        return self.head(self.second(x).relu().mean((2, 3)))


INPUTS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "deep": (lambda: Deep(WIDTH, 6), (4, 8, WIDTH)),
    "pooled": (Pooled, (4, 3, 12, 12)),
}


@cache
def running(name: str, mode: Mode) -> Running:
    """The plan of a network with random weights, which each check begins with."""
    torch.manual_seed(0)
    make, shape = INPUTS[name]
    return Running(lower(make(), torch.randn(shape), mode))


def check(
    plan: Running, at: str = "", plant: Plant = lambda values: values, graph: Graph | None = None
) -> StepsCheck:
    """Run an iteration with a fault in the value of that name, and judge its operations. graph:
    what the plan should compute, if that is not what it was built from."""
    execution = plan.execution

    def run(watch: Watch) -> None:
        execution.run_watched(under_plant(execution, at, plant, watch))

    plan.fill_state()
    plan.point_at(0)
    return steps_check(plan.network, execution, run, graph=graph)


def places(plan: Running) -> list[str]:
    """Results with rows that an iteration computes, in the graph's order; of many, six."""
    found = [
        value.name
        for node in plan.built.graph.nodes
        for value in node.outputs
        if value is not None
        and not is_view(node)
        and plan.built.values.get(value.name, (None, -1))[1] >= 0
        and (len(value.shape) > 1 and value.dtype == "float32")
    ]
    return found[:: max(1, len(found) // 6)]


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["infer", "train"])
@pytest.mark.parametrize("name", INPUTS)
def test_what_is_right_passes(name: str, mode: Mode) -> None:
    found = check(running(name, mode))
    assert found.count >= 6 and not found.failed, found.words
    assert found.worst is not None and found.worst.share < 0.5


@pytest.mark.slow
@pytest.mark.parametrize("fault", PLANTS)
@pytest.mark.parametrize("mode", ["infer", "train"])
@pytest.mark.parametrize("name", INPUTS)
def test_a_fault_is_found_where_it_was_planted(name: str, mode: Mode, fault: str) -> None:
    plan = running(name, mode)
    for at in places(plan):
        changed = False

        def plant(values: np.ndarray) -> np.ndarray:
            nonlocal changed
            planted = PLANTS[fault](values.copy())
            changed = not np.array_equal(planted, values)  # a row may have been zero
            return planted

        found = check(plan, at, plant)
        if changed:
            assert found.wrong and found.wrong[0].value == at, (at, found.words)


def test_another_epsilon_is_found_where_variances_are_small() -> None:
    """Elsewhere it changes nothing."""
    torch.manual_seed(0)
    plan = Running(lower(nn.LayerNorm(WIDTH), 1e-3 * torch.randn(4, 8, WIDTH), "infer"))
    right = plan.built.graph
    assert not check(plan, graph=right).failed
    nodes = tuple(
        msgspec.structs.replace(node, keywords={**node.keywords, "epsilon": 0.0})
        if node.op == LayerNorm.op()
        else node
        for node in right.nodes
    )
    other = msgspec.structs.replace(right, nodes=nodes)
    assert check(plan, graph=other).failed == 1


def test_the_wrong_one_of_equal_maxima_is_found() -> None:
    """The gradient goes to the first of them."""
    x = torch.tensor([[[[1.0, 1.0], [0.0, 1.0]]]]).repeat(2, 1, 2, 2)
    plan = Running(lower(nn.Sequential(nn.MaxPool2d(2), nn.Flatten()), x, "infer"))
    assert not check(plan).failed
    module = nn.Sequential(nn.Conv2d(1, 1, 1), nn.MaxPool2d(2), nn.Flatten())
    torch.nn.init.constant_(module[0].weight, 1.0)
    plan = Running(lower(module, x, "train"))
    inner = next(
        node.outputs[0].name
        for node in plan.built.graph.nodes
        if node.op == f"{MaxPool.op()}_backward" and node.outputs[0] is not None
    )
    assert not check(plan).failed

    def last_instead(values: np.ndarray) -> np.ndarray:
        return values[..., ::-1].copy()

    found = check(plan, inner, last_instead)
    assert found.wrong[0].value == inner


def rounded_values(
    graph: Graph, inputs: dict[str, Tensor], at: str, plant: Plant
) -> dict[str, Tensor]:
    """The values of a level that computes every operation right and rounds its result to bf16, as a
    device's kernels do; with a fault after one of them."""

    def stored(name: str, result: Tensor) -> Tensor:
        tensor = result.to(torch.bfloat16).float()
        return torch.from_numpy(plant(tensor.numpy().copy())) if name == at else tensor

    return level_values(graph, inputs, stored)


@pytest.mark.slow
@pytest.mark.parametrize("fault", [*(name for name in PLANTS if name != "off by a hundredth"), ""])
def test_in_bf16_a_fault_of_a_network_of_fifty_layers_is_found(fault: str) -> None:
    """With random weights, where the outputs at the end say little. A hundredth is rounding."""
    torch.manual_seed(0)
    network = lower(Deep(WIDTH), torch.randn(4, 8, WIDTH), "infer")
    graph, given = network.graph, graph_inputs(network, network.graph)
    names = [n.outputs[0].name for n in graph.nodes if n.outputs[0] is not None]
    for at in names[:: len(names) // 5]:
        found = rounded_values(graph, given, at, PLANTS.get(fault, lambda values: values))
        items = step_values(graph, given, lambda _, name, found=found: found.get(name))
        errors = summary(judged(item, BF16, "bfloat16") for item in items)
        if fault:
            assert errors.wrong and errors.wrong[0].value == at, (at, errors.words)
        else:
            assert not errors.failed, errors.words


def factors_in_tf32(tensor: Tensor) -> Tensor:
    """As tensor cores read float32: the nearest number of eleven binary digits."""
    bits = tensor.float().contiguous().view(torch.int32)
    return ((bits + (1 << 12)) & ~((1 << 13) - 1)).view(torch.float32).double()


@pytest.mark.parametrize("left_out", [0, 100])
def test_rounding_takes_what_nearly_equal_factors_differ_by(left_out: int) -> None:
    """What is lost follows the other factor, and adds up: a gradient of a convolution's weight
    before a norm of whole images, as a constant and a little of the image, was "wrong" in TF32."""
    torch.manual_seed(0)
    layer, x = nn.Linear(1 << 17, 8, bias=False), torch.randn(1, 1 << 17)
    x -= x.mean(1, keepdim=True)
    with torch.no_grad():
        layer.weight.copy_(torch.linspace(1, 2, 8)[:, None] * (1 + 1e-4 * x))
    network = lower(layer, x, "infer")
    given = graph_inputs(network, network.graph)
    rows = factors_in_tf32(x)
    rows[:, :left_out] = 0
    result = rows @ factors_in_tf32(layer.weight.detach()).T

    def found(_: object, name: str) -> Tensor | None:
        made = {v.name for n in network.graph.nodes for v in n.outputs if v is not None}
        return result.float() if name in made else None

    errors = summary(
        judged(item, TF32, "float32") for item in step_values(network.graph, given, found)
    )
    assert errors.count and bool(errors.failed) == bool(left_out), errors.words
