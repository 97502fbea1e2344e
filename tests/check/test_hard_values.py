"""Operations that are wrong for hard values alone are found, and right ones pass."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from golow.check.hard_step_values import hard_step_values
from golow.check.rounding import BF16
from golow.check.step_rule import judged, summary
from golow.check.step_values import doubled, evaluated, step_values
from golow.levels.direct.watched_values import Watch
from golow.lower.analysis.hard_values import EQUAL_MAXIMA, SMALL_VARIANCES, hard_values
from golow.lower.ir.graph import Graph, Node, Ref
from golow.lower.operators.max_pool import MaxPoolBackward
from golow.records.comparison import StepsCheck
from golow.records.workload import Mode
from support.direct.in_process import graph_inputs
from support.direct.onednn_in_process import Running, lower
from support.direct.step_checks import HandedOver, hard_steps_check, steps_check
from support.models.deep import Deep
from support.plants.planted_steps import Plant, under_plant

pytestmark = pytest.mark.slow
WIDTH = 32


class Grown(nn.Module):
    """Norms and maxima over images that are within one another, as of a dense network."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.norm = nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8)
        self.second, self.both = nn.Conv2d(8, 8, 3, padding=1), nn.BatchNorm2d(16)
        self.last, self.groups = nn.Conv2d(16, 8, 1), nn.GroupNorm(2, 8)
        self.head = nn.Linear(8, 10)

    def forward(self, x: Tensor) -> Tensor:
        x = functional.max_pool2d(self.norm(self.first(x)).relu(), 2)
        x = torch.cat([x, self.second(functional.max_pool2d(x, 3, 1, 1))], 1)
        x = functional.max_pool2d(self.last(self.both(x).relu()), 2)
        return self.head(self.groups(x).mean((2, 3)))


SUBJECTS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...], set[str]]] = {
    "deep": (lambda: Deep(WIDTH), (4, 8, WIDTH), {SMALL_VARIANCES}),
    "grown": (Grown, (4, 3, 16, 16), {SMALL_VARIANCES, EQUAL_MAXIMA}),
}


def running(name: str, mode: Mode) -> Running:
    """The plan of a network with random weights."""
    torch.manual_seed(0)
    make, shape, _ = SUBJECTS[name]
    return Running(lower(make(), torch.randn(shape), mode))


def hard(plan: Running, graph: Graph | None = None) -> StepsCheck:
    """The check of operations with hard values."""
    plan.point_at(0)
    plan.fill_state()
    return hard_steps_check(plan.network, plan.execution, plan.execution.run_watched, graph=graph)


def with_epsilon(graph: Graph, at: int, epsilon: float) -> Graph:
    """The graph with another epsilon in one of its forward norms."""
    norms = [n for n in graph.nodes if "epsilon" in n.keywords and n.phase == "forward"]
    changed = norms[at]

    def node(item: Node) -> Node:
        if item is not changed:
            return item
        return msgspec.structs.replace(item, keywords={**item.keywords, "epsilon": epsilon})

    return msgspec.structs.replace(graph, nodes=tuple(map(node, graph.nodes)))


@pytest.mark.parametrize("name", SUBJECTS)
def test_what_is_right_passes(name: str) -> None:
    plan = running(name, "train")
    found = hard(plan)
    assert found.count >= 8 and not found.failed, found.words
    assert found.worst is not None and found.worst.share < 0.5


@pytest.mark.parametrize("name", SUBJECTS)
@pytest.mark.parametrize("epsilon", [0.0, 1e-6, 1e-4])
def test_another_epsilon_is_found(name: str, epsilon: float) -> None:
    """As of a kernel that leaves it out, or has another one, in a network of fifty layers."""
    plan = running(name, "train")
    other = with_epsilon(plan.built.graph, 0, epsilon)
    found = hard(plan, other)
    assert found.wrong and found.wrong[0].hard == SMALL_VARIANCES, found.words
    assert "given small variances" in found.wrong[0].words


def test_the_wrong_one_of_equal_maxima_is_found() -> None:
    """The gradient of a window goes to its last maximum instead of its first one."""
    plan = running("grown", "train")
    graph, execution = plan.built.graph, plan.execution
    backward = next(node for node in graph.nodes if node.op == MaxPoolBackward.op())
    result = backward.outputs[0]
    given = backward.keywords["x"], backward.keywords["gradient"]
    assert result is not None
    seen: dict[str, np.ndarray] = {}

    def last_instead(values: np.ndarray) -> np.ndarray:
        x, gradient = (torch.from_numpy(seen[g.name].copy()) for g in given if isinstance(g, Ref))
        x = x.flip(2, 3).requires_grad_()
        numbers = backward.keywords
        window = numbers["kernel"], numbers["stride"], numbers["padding"]
        functional.max_pool2d(x, *window).backward(gradient.flip(2, 3))  # type: ignore[arg-type]
        assert x.grad is not None
        return x.grad.flip(2, 3).numpy()

    def checked(check: Callable[..., StepsCheck], plant: Plant) -> StepsCheck:
        def run(watch: Watch) -> None:
            def spy(position: int) -> None:
                watch(position)
                for item in given:
                    if isinstance(item, Ref) and plan.built.values[item.name][1] == position:
                        seen[item.name] = execution.read(plan.built.values[item.name][0])

            execution.run_watched(under_plant(execution, result.name, plant, spy))

        plan.point_at(0)
        plan.fill_state()
        return check(plan.network, execution, run)

    assert not checked(hard_steps_check, lambda values: values).failed
    found = checked(hard_steps_check, last_instead)
    assert found.wrong and found.wrong[0].value == result.name, found.words
    assert found.wrong[0].hard == EQUAL_MAXIMA
    assert not checked(steps_check, last_instead).failed


@pytest.mark.parametrize("epsilon", [None, 0.0, 1e-4])
def test_in_bf16_another_epsilon_is_found_in_a_network_of_fifty_layers(
    epsilon: float | None,
) -> None:
    """By hard values alone. A level that rounds every result to bf16, as a device's kernels do."""
    torch.manual_seed(0)
    network = lower(Deep(WIDTH), torch.randn(4, 8, WIDTH), "infer")
    graph, given = network.graph, graph_inputs(network, network.graph)
    computed = graph if epsilon is None else with_epsilon(graph, 10, epsilon)
    harder = hard_values(graph)

    def level(hard: bool) -> HandedOver:
        found = HandedOver(tuple(harder) if hard else ())
        values = {name: doubled(tensor) for name, tensor in given.items()}
        for node in computed.nodes:
            results = evaluated(node, {name: values[name] for name in node.references()})
            for value, result in zip(node.outputs, results, strict=True):
                if value is None:
                    continue
                made = result.to(torch.bfloat16).float()
                found.made[value.name], values[value.name] = made, doubled(made)
                if value.name in found.hard:
                    made = torch.from_numpy(harder[value.name](made.numpy())).bfloat16().float()
                    found.replaced[value.name], values[value.name] = made, doubled(made)
        return found

    usual_ = summary(
        judged(item, BF16, "bfloat16") for item in step_values(graph, given, level(False))
    )
    found = summary(
        judged(value, BF16, "bfloat16") for value, _ in hard_step_values(graph, given, level(True))
    )
    assert not usual_.failed
    assert bool(found.failed) is (epsilon is not None), found.words
