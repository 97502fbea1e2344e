"""The weight of a linear layer is stored transposed if that was faster. Nothing runs on a GPU: the
times are given, and NumPy multiplies what the plan's memory holds."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

import numpy as np
import pytest
from torch import Tensor, nn

from golow.levels.direct.cudnn.planning import build_plan
from golow.levels.direct.cudnn.problems.gemm import Problem
from golow.levels.direct.cudnn.problems.layouts import Layout
from golow.levels.direct.cudnn.problems.precision import TYPES
from golow.levels.direct.cudnn.problems.products import Convolution
from golow.levels.direct.cudnn.steps.built_plan import Built
from golow.records.workload import Mode
from support.direct.cuda_on_cpu import Machine
from support.direct.cudnn_plans import AskedEngines, TimedEngines, assert_sound, lowered

if TYPE_CHECKING:
    from golow.levels.direct.cudnn.engines.engines import Engines


def timed(turned: float, activating: float = 9000.0) -> TimedEngines:
    """Products take 2000 nanoseconds, with their weight turned and with an activation so many."""

    def nanoseconds(operation: Convolution | Problem) -> float:
        if not isinstance(operation, Problem):
            return activating
        return 2000.0 if operation.transpose_b else turned

    return TimedEngines(nanoseconds)


class Twice(nn.Module):
    """A weight that two layers read."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(16, 16)

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(self.layer(x))


ONE = nn.Sequential(nn.Linear(16, 24))


def planned(engines: AskedEngines, module: nn.Module = ONE, mode: Mode = "infer") -> Built:
    graph = lowered(module, mode, (4, 16))
    made = build_plan(graph, cast("Engines", engines), TYPES["ieee"], 1)
    assert_sound(made)
    return made


def orders(made: Built) -> set[str]:
    """In which the weights of linear layers are read."""
    steps = [step for step in made.plan.steps if step.operation == "linear" and len(step.reads) > 1]
    return {step.reads[1].layout.partition(":")[2] or "rows" for step in steps}


@pytest.mark.parametrize(("turned", "order"), [(1000.0, "transposed"), (2000.0, "rows")])
def test_the_faster_order_is_taken_and_filled_in_when_loading(turned: float, order: str) -> None:
    engines = timed(turned)
    made = planned(engines)
    assert orders(made) == {order}
    assert [step.operation for step in made.plan.steps] == ["fetch", "linear"]
    [problem] = engines.operations
    assert isinstance(problem, Problem) and problem.transpose_b == (order == "rows")
    machine, layer = Machine(made), ONE[0]
    weight, bias = (t.detach().numpy() for t in (layer.weight, layer.bias))
    machine.begin({}, {"v_0_weight": weight, "v_0_bias": bias})
    place = next(fill.tensor for fill in made.fills if fill.value == "v_0_weight")
    as_it_lies = place._replace(shape=(weight.size,), layout=Layout("float32"))
    b = machine.read(as_it_lies).reshape(problem.matrices["b"][:2])
    x = np.random.default_rng(0).standard_normal((4, 16), np.float32)
    found = x @ (b.T if problem.transpose_b else b)
    np.testing.assert_allclose(found, x @ weight.T, rtol=1e-5, atol=1e-5)


def test_without_timing_it_stays() -> None:
    assert orders(planned(AskedEngines())) == {"rows"}


def test_a_weight_with_several_readers_has_one_place() -> None:
    made = planned(timed(1000.0), Twice())
    assert orders(made) == {"rows"}


def test_in_training_it_stays() -> None:
    assert orders(planned(timed(1000.0), ONE, "train")) == {"rows"}


@pytest.mark.parametrize(("activating", "order"), [(1500.0, "rows"), (9000.0, "transposed")])
def test_a_convolution_with_an_activation_has_its_own_order(activating: float, order: str) -> None:
    """It competes with the faster of both orders and a pass."""
    made = planned(timed(1000.0, activating), nn.Sequential(nn.Linear(16, 24), nn.GELU()))
    assert orders(made) == {order}


def test_training_stores_weights_of_lines_as_convolutions_read_them() -> None:
    """Neither the weights nor their gradients are copied, only the input."""
    module = nn.Sequential(nn.Conv1d(8, 8, 3), nn.Tanh(), nn.Conv1d(8, 4, 3), nn.AvgPool1d(5))
    graph = lowered(nn.Sequential(module, nn.Flatten()), "train", (4, 8, 9))
    made = build_plan(graph, cast("Engines", AskedEngines()), TYPES["bf16"], 1)
    assert_sound(made)
    weights = [tensor for (kind, _), tensor in made.inputs.items() if kind == "parameter"]
    assert [w.layout.order for w in weights if len(w.shape) == 3] == ["transposed"] * 2
    copied = [step.reads[0] for step in made.plan.steps if step.operation == "copy"]
    assert {made.plan.buffers[operand.buffer].name for operand in copied} == {"input_0"}
