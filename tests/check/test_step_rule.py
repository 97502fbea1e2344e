"""The check of single operations: every planted fault is found where it was planted, and what is
right passes."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import numpy as np
import pytest
import torch
from torch import Tensor, nn

from golow.check.rounding import BF16, FLOAT32, Rounding
from golow.check.step_rule import judged, summary
from golow.check.step_values import step_values
from golow.lower.ir.graph import Graph
from golow.lower.ir.operator import is_view
from golow.lower.operators.layer_norm import LayerNorm
from golow.lower.operators.max_pool import MaxPool
from golow.records.comparison import StepsCheck
from golow.records.workload import Mode
from support.direct.in_process import graph_inputs
from support.direct.onednn_in_process import Running, lower
from support.plants.planted_steps import PLANTS, Plant

WIDTH = 32


class Deep(nn.Module):
    """Layers of products, norms, rectifiers and sums."""

    def __init__(self, layers: int = 50) -> None:
        super().__init__()
        self.products = nn.ModuleList(nn.Linear(WIDTH, WIDTH) for _ in range(layers))
        self.norms = nn.ModuleList(nn.LayerNorm(WIDTH) for _ in range(layers // 2))
        self.head = nn.Linear(WIDTH, 10)

    def forward(self, x: Tensor) -> Tensor:
        for place, product in enumerate(self.products):
            y = nn.functional.gelu(product(x))
            x = self.norms[place // 2](x + y) if place % 2 else y
        return self.head(x.mean(1))


class Pooled(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.norm = nn.Conv2d(3, 16, 3, padding=1), nn.BatchNorm2d(16)
        self.second, self.head = nn.Conv2d(16, 16, 3), nn.Linear(16, 10)

    def forward(self, x: Tensor) -> Tensor:
        x = nn.functional.max_pool2d(self.norm(self.first(x)).relu(), 2)
        return self.head(self.second(x).relu().mean((2, 3)))


INPUTS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "deep": (lambda: Deep(6), (4, 8, WIDTH)),
    "pooled": (Pooled, (4, 3, 12, 12)),
}


def running(name: str, mode: Mode) -> Running:
    """The plan of a network with random weights."""
    torch.manual_seed(0)
    make, shape = INPUTS[name]
    return Running(lower(make(), torch.randn(shape), mode))


def check(
    plan: Running, at: str = "", plant: Plant = lambda values: values, graph: Graph | None = None
) -> StepsCheck:
    """Run an iteration with a fault in the value of that name, and judge its operations. graph:
    what the plan should compute, if that is not what it was built from."""
    values, execution = plan.built.values, plan.execution
    found: dict[str, Tensor] = {}

    def watch(position: int) -> None:
        for name, (tensor, made_at) in values.items():
            if made_at == position:
                if name == at:
                    execution.write(tensor, plant(execution.read(tensor)))
                found[name] = torch.from_numpy(execution.read(tensor))

    plan.point_at(0)
    watch(-1)
    execution.run_watched(watch)
    graph = graph or plan.built.graph
    given = graph_inputs(plan.network, graph)
    items = step_values(graph, given, lambda _, name: found.get(name))
    return summary(judged(item, FLOAT32, "float32") for item in items)


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
        plan.fill_state()
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
    plan.fill_state()

    def last_instead(values: np.ndarray) -> np.ndarray:
        return values[..., ::-1].copy()

    found = check(plan, inner, last_instead)
    assert found.wrong[0].value == inner


class Rounded:
    """A level that computes every operation of a graph right and rounds its result to bf16, as a
    device's kernels do; with a fault after one of them."""

    def __init__(self, graph: Graph, at: str, plant: Plant) -> None:
        self.at, self.plant = at, plant
        self.values: dict[str, Tensor] = {}
        self.graph = graph

    def run(self, inputs: dict[str, Tensor]) -> dict[str, Tensor]:
        """All values."""
        found: dict[str, Tensor] = {}

        def rounded(_: int, name: str) -> Tensor | None:
            return None

        given = dict(inputs)
        for node in self.graph.nodes:
            part = msgspec.structs.replace(self.graph, nodes=(node,), outputs=())
            seen = {item: given[item] for item in node.references()}
            for value, wanted in _results(part, seen, rounded):
                tensor = wanted.to(torch.bfloat16).float()
                if value == self.at:
                    tensor = torch.from_numpy(self.plant(tensor.numpy().copy()))
                given[value] = found[value] = tensor
        return found


def _results(
    graph: Graph, given: dict[str, Tensor], found: Callable[[int, str], Tensor | None]
) -> list[tuple[str, Tensor]]:
    from golow.check.step_values import doubled, evaluated

    (node,) = graph.nodes
    results = evaluated(node, {name: doubled(tensor) for name, tensor in given.items()})
    pairs = zip(node.outputs, results, strict=True)
    return [(value.name, result) for value, result in pairs if value is not None]


@pytest.mark.slow
@pytest.mark.parametrize("fault", [*PLANTS, ""])
def test_in_bf16_a_fault_of_a_network_of_fifty_layers_is_found(fault: str) -> None:
    """With random weights, where the outputs at the end say little."""
    torch.manual_seed(0)
    network = lower(Deep(), torch.randn(4, 8, WIDTH), "infer")
    graph = network.graph
    given = graph_inputs(network, graph)
    names = [n.outputs[0].name for n in graph.nodes if n.outputs[0] is not None]
    for at in names[:: len(names) // 5]:
        plant = PLANTS.get(fault, lambda values: values)
        if fault == "off by a hundredth":  # which is less than a rounding or two
            plant = lambda values: values * np.float32(1.1)  # noqa: E731
        found = Rounded(graph, at, plant).run(given)
        errors = summary(_judged(graph, given, found, BF16))
        if fault:
            assert errors.wrong and errors.wrong[0].value == at, (at, errors.words)
        else:
            assert not errors.failed, errors.words


def _judged(
    graph: Graph, given: dict[str, Tensor], found: dict[str, Tensor], working: Rounding
) -> list:
    items = step_values(graph, given, lambda _, name: found.get(name))
    return [judged(item, working, "bfloat16") for item in items]
