"""Generated kernels and views of `cudnn`, run on this processor: groups of functions, permuted,
sliced, repeated and joined tensors."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING, cast

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from golow.levels.direct.cudnn.passes import passes
from golow.levels.direct.cudnn.planning import build_plan
from golow.levels.direct.cudnn.problems.precision import TYPES
from golow.lower.fuse.pointwise_fusion import group_elements
from golow.lower.ir.clean_up import CLEAN_UP
from golow.lower.ir.graph import Graph, GraphInput, GraphOutput, Node, Phase, Ref, Value
from golow.lower.ir.operator import Operator, written
from golow.lower.ir.pass_runner import apply
from golow.lower.ir.verify import interpret, verify
from golow.lower.operators.binary import Binary
from golow.lower.operators.flip import Flip
from golow.lower.operators.sgd_update import SgdUpdate
from golow.records.workload import Mode
from golow.workload.graph_capture import capture
from golow.workload.prepare import prepare
from golow.workload.request import Request
from support.direct.cuda_on_cpu import Machine, follow
from support.direct.cudnn_plans import AskedEngines, Scaled, built, lowered
from support.examples import examples, most_in_training
from support.graphs.drawn_values import drawn
from support.models.drawn_functions import Drawn, Step, steps_drawn
from support.models.rare_operators import FURTHER

if TYPE_CHECKING:
    from golow.levels.direct.cudnn.engines.engines import Engines


def assert_computes(model: nn.Module, x: Tensor) -> None:
    """Groups mean what the graph means, and the plan computes it."""
    prepared = prepare(Request(model, x))
    graph = apply(apply(capture(prepared).graph, CLEAN_UP), passes(prepared.workload))
    named = {"input": {"0": x}}
    tensors = {i.value.name: named[i.kind][i.target] for i in graph.inputs if i.kind == "input"}
    assert len(tensors) == len(graph.inputs)
    expected = interpret(graph, tensors)
    grouped = interpret(verify(group_elements(graph)), tensors)
    for name, tensor in expected.items():
        torch.testing.assert_close(grouped[name], tensor, rtol=0, atol=0)
    built = build_plan(graph, cast("Engines", None), TYPES["default"], 1)
    machine = Machine(built)
    machine.begin({("input", "0"): x.numpy()}, {})
    assert all(machine.call(call) for call in built.calls)
    for (kind, target), tensor in built.outputs.items():
        wanted = expected[f"{kind}/{target}"].numpy()
        np.testing.assert_allclose(machine.read(tensor), wanted, rtol=2e-6, atol=1e-6)


@pytest.mark.slow
@examples(40)
@given(steps=steps_drawn, shape=st.sampled_from([(2, 3, 4, 8), (4, 16), (2, 5, 6), (3, 8, 4, 4)]))
def test_functions_and_views_compute_what_torch_does(
    steps: list[Step], shape: tuple[int, ...]
) -> None:
    torch.manual_seed(0)
    x = torch.randn(shape)
    assert_computes(Drawn(steps, x), x)


@pytest.mark.parametrize(
    "steps",
    [
        [("turned", 0, 1), ("relu", 1, 0), ("sum", 2, 1)],
        [("sliced", 0, 0), ("sliced", 0, 1), ("sum", 1, 2)],
        [("joined", 0, 0), ("relu", 1, 0), ("joined", 2, 0)],
    ],
)
def test_what_overlaps_is_not_overwritten(steps: list[Step]) -> None:
    x = torch.randn(4, 4, 4, 8)
    assert_computes(Drawn(steps, x), x)


# What reads views, broadcasts, joins or adds up in many ways.
NETWORKS_FOLLOWED = [
    "instance norm", "group norm of signals", "attention, masked by numbers", "attention, grouped",
    "encoder layer", "lstm", "linear of signals", "windows", "norm", "largest",
]  # fmt: skip
RARE_FOLLOWED = ["distances", "bags, largest", "weights of norm one", "sampled by cubes"]


@pytest.mark.slow
@most_in_training
@pytest.mark.parametrize("name", [*NETWORKS_FOLLOWED, *RARE_FOLLOWED])
def test_every_value_of_a_network_is_where_its_plan_says(name: str, mode: Mode) -> None:
    torch.manual_seed(0)
    network = FURTHER[name]
    graph = lowered(network.make(), mode, tuple(network.shape))
    tensors = {item.value.name: drawn(item.value) for item in graph.inputs}
    follow(graph, cast("Engines", AskedEngines()), tensors)


@pytest.mark.slow
@pytest.mark.parametrize(
    "function",
    [
        lambda x, w, v: w.t() * x,  # the input is in the other order
        lambda x, w, v: x + w.t() * v,  # vectors along either axis
        lambda x, w, v: x + w.t() * v[:, None],
        lambda x, w, v: (x @ w.t()) * w,
    ],
)
def test_turned_matrices_beside_others(
    function: Callable[[Tensor, Tensor, Tensor], Tensor],
) -> None:
    torch.manual_seed(0)
    graph = lowered(Scaled(function), "train", (4, 4))
    tensors = {item.value.name: drawn(item.value) for item in graph.inputs}
    follow(graph, cast("Engines", AskedEngines()), tensors)


class PassedOn(nn.Module):
    """The gradient of ``shift``, which is in the other order, is that of the layer before it,
    too."""

    def __init__(self) -> None:
        super().__init__()
        self.scale, self.shift, self.last = (nn.Parameter(torch.rand(4, 4)) for _ in range(3))

    def forward(self, x: Tensor) -> Tensor:
        return ((x * self.scale).tanh() + self.shift.t()) @ self.last


@pytest.mark.slow
def test_a_gradient_that_is_passed_on_is_not_overwritten_before_its_update() -> None:
    torch.manual_seed(0)
    graph = lowered(PassedOn(), "train", (4, 4))
    tensors = {item.value.name: drawn(item.value) for item in graph.inputs}
    follow(graph, cast("Engines", AskedEngines()), tensors)


def test_a_group_that_reads_a_parameter_stays_before_its_update() -> None:
    """Joined with what comes after the update, it would read the new content."""
    weight, later = graph_value("weight"), graph_value("later")
    multiply = Binary(function="multiply", a=Ref(name="x"), b=Ref(name="weight"))
    product = node(multiply, graph_value("a"))
    update = node(
        SgdUpdate(
            parameter=Ref(name="weight"), momentum=Ref(name="momentum"), gradient=Ref(name="x"),
            learning_rate=Ref(name="rate"), factor=0.9, weight_decay=0.0,
        ),
        graph_value("new_momentum"), graph_value("new_weight"), phase="update",
    )  # fmt: skip
    copied = node(Flip(x=Ref(name="x"), axes=(0,)), later)
    total = node(Binary(function="add", a=Ref(name="a"), b=Ref(name="later")), graph_value("y"))
    graph = Graph(
        name="moved", mode="train", nodes=(product, update, copied, total),
        inputs=(
            GraphInput(value=graph_value("x"), kind="input", target="0"),
            GraphInput(value=weight, kind="parameter", target="weight"),
            GraphInput(value=graph_value("momentum"), kind="momentum", target="weight"),
            GraphInput(value=graph_value("rate", ()), kind="learning_rate", target=""),
        ),
        outputs=(
            GraphOutput(name="y", kind="output", target="0"),
            GraphOutput(name="new_weight", kind="parameter", target="weight"),
            GraphOutput(name="new_momentum", kind="momentum", target="weight"),
        ),
    )  # fmt: skip
    ops = [item.op for item in verify(group_elements(verify(graph))).nodes]
    assert ops == ["golow.flip", "golow.fused", "golow.sgd_update"]


def graph_value(name: str, shape: tuple[int, ...] = (4, 4)) -> Value:
    return Value(name=name, shape=shape, dtype="float32")


def node(operator: Operator, *values: Value, phase: Phase = "forward") -> Node:
    empty = Node(name=values[-1].name, op="", arguments=(), phase=phase)
    return written(empty, operator, outputs=values)


class Dense(nn.Module):
    """Layers that read all that came before them, as in DenseNet; each result is joined twice."""

    def __init__(self, axis: int) -> None:
        super().__init__()
        self.axis = axis

    def forward(self, x: Tensor) -> Tensor:
        features = [x * 2]
        for k in range(3):
            joined = torch.cat(features, self.axis)
            features.append(joined.narrow(self.axis, 0, x.shape[self.axis]).relu() + k)
        last = torch.cat(features, self.axis)
        return torch.cat([last.tanh(), features[1].exp()], self.axis) + features[2].amin()


@pytest.mark.slow
@pytest.mark.parametrize("axis", [0, 1, 2, 3])
@pytest.mark.parametrize("mode", ["infer", "train"])
def test_parts_lie_where_they_are_joined(axis: int, mode: Mode) -> None:
    torch.manual_seed(0)
    module = nn.Sequential(nn.Conv2d(4, 4, 1), Dense(axis), nn.Conv2d(4 if axis != 1 else 20, 2, 1))
    graph = lowered(module, mode, (4, 4, 4, 8))
    tensors = {item.value.name: drawn(item.value) for item in graph.inputs}
    follow(graph, cast("Engines", AskedEngines()), tensors)


@pytest.mark.slow
def test_a_dense_block_copies_each_feature_once() -> None:
    """One copy for each of 58 layers, and one for what each of four blocks begins with. The mean
    over all pixels computes the last norm itself."""
    made, _ = built("densenet121", "infer", "default", 64)
    steps = Counter(step.operation for step in made.plan.steps)
    assert steps["concatenate"] == 62
    assert (steps["fused"], steps["fused_reduce"]) == (61, 1)
