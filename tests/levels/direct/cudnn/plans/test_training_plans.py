"""What a training step's plan holds beside its kernels: the scale of the loss, what dropout draws
by, the update. Hand-written graphs, and no GPU."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import pytest
import torch
from torch import nn

from golow.levels.direct.cudnn.planning import build_plan
from golow.levels.direct.cudnn.problems import products
from golow.levels.direct.cudnn.problems.gemm import Problem
from golow.levels.direct.cudnn.problems.precision import TYPES
from golow.levels.direct.cudnn.problems.products import Convolution
from golow.levels.direct.cudnn.steps.built_plan import (
    LOSS_SCALE,
    POSITION,
    Built,
    Cell,
    KernelCall,
    Tensor,
)
from golow.lower.ir.graph import Activation, Graph, GraphOutput, Node, Ref
from golow.lower.operators.binary import Binary
from golow.lower.operators.fill import Fill
from golow.lower.operators.loss_gradient import LossGradient
from golow.lower.operators.sgd_update import SgdUpdate
from golow.records.workload import Precision
from support.direct.cudnn_plans import AskedEngines, TimedEngines, assert_sound, built, lowered
from support.graphs.lowering import Case
from support.graphs.shaped_nodes import given, node, value

if TYPE_CHECKING:
    from golow.levels.direct.cudnn.engines.engines import Engines


def planned(graph: Graph, precision: Precision) -> Built:
    return build_plan(graph, cast("Engines", AskedEngines()), TYPES[precision], 4)


# ---------------------------------------------------------------- the scale of the loss

# gradient = 0.5 * (the gradient of the loss); a constant of the backward graph is a number.
HALVED = Graph(
    name="halved",
    mode="train",
    inputs=(given("weight", kind="parameter"),),
    nodes=(
        node(LossGradient(dtype="float32"), value("one"), phase="backward"),
        node(Fill(shape=(), value=0.5, dtype="float32"), value("half"), phase="backward"),
        node(
            Binary(function="multiply", a=Ref(name="one"), b=Ref(name="half")),
            value("gradient"),
            phase="backward",
        ),
    ),
    outputs=(GraphOutput(name="gradient", kind="gradient", target="weight"),),
)


def product(made: Built) -> tuple[Tensor | None, ...]:
    """Pointers of the multiplication."""
    (found,) = (
        call
        for call in made.calls
        if isinstance(call, KernelCall) and "static_cast<float>(x0 * x1)" in call.kernel.code
    )
    return found.arguments


def number(made: Built, tensor: Tensor | None) -> str | float | None:
    """What a tensor holds from the moment of loading on; None where that is nothing."""
    fills = {fill.tensor.buffer: fill.value for fill in made.fills}
    return fills.get(tensor.buffer) if tensor else None


@pytest.mark.parametrize("precision", ["fp16", "bf16", "ieee"])
def test_only_the_losss_own_gradient_is_its_scale(precision: Precision) -> None:
    """Every number of the backward graph without an axis was taken for the scale once."""
    made = planned(HALVED, precision)
    one, half, _ = product(made)
    assert number(made, half) == 0.5
    if precision == "fp16":
        assert one is not None and one.buffer == made.cells[LOSS_SCALE].buffer
        assert number(made, one) is None
    else:
        assert LOSS_SCALE not in made.cells
        assert number(made, one) == 1.0


def test_a_captured_loss_has_its_scale_where_backward_begins() -> None:
    made, _ = built(nn.Sequential(nn.Linear(6, 4)), "train", "fp16", 3, 6)
    buffer = made.cells[LOSS_SCALE].buffer
    readers = [
        step.operation
        for step in made.plan.steps
        if buffer in {operand.buffer for operand in step.reads}
    ]
    assert readers == ["cross_entropy_backward"]


# ---------------------------------------------------------------- what steps share


def test_a_sum_of_losses_has_a_plan() -> None:
    """The loss of what has several outputs, also where it has one: numbers that are joined."""
    case = Case(
        nn.Linear(4, 3),
        torch.randn(2, 4),
        mode="train",
        loss="mse_of_outputs",
        targets=torch.randn(2, 3),
    )
    assert_sound(planned(case.lowered("cudnn"), "bf16"))


def test_dropout_has_a_cell_for_each_probability() -> None:
    layers = (nn.Linear(6, 6), nn.Dropout(0.1), nn.Linear(6, 6), nn.Dropout(0.25), nn.Dropout(0.1))
    made, _ = built(nn.Sequential(*layers), "train", "ieee", 3, 6)
    assert set(made.cells) == {POSITION, Cell("dropout", 0.1), Cell("dropout", 0.25)}
    steps = [step.operation for step in made.plan.steps]
    assert steps.count("dropout") == 3 and steps.count("advance") == 2
    names = {made.plan.buffers[tensor.buffer].name for tensor in made.cells.values()}
    assert names == {"position", "dropout 0.1", "dropout 0.25"}


def test_backward_takes_the_probability_that_forward_drew_by() -> None:
    made, _ = built(nn.Sequential(nn.Linear(6, 6), nn.Dropout(0.25)), "train", "ieee", 3, 6)
    (backward,) = (
        cast("KernelCall", call)
        for call, step in zip(made.calls, made.plan.steps, strict=True)
        if step.operation == "dropout_backward"
    )
    probability = backward.arguments[2]
    assert probability is not None
    assert probability.buffer == made.cells[Cell("dropout", 0.25)].buffer
    assert probability.offset == 8


# ---------------------------------------------------------------- the update


def test_one_step_of_a_kind_updates_a_group_of_parameters() -> None:
    """In float16 after the search for gradients that are not finite, and before the next scale."""
    graph = lowered("resnet18", "train", (64,))
    updates = [SgdUpdate.of(item) for item in graph.nodes]
    assert sum(update is not None for update in updates) == 62
    steps = [step.operation for step in planned(graph, "fp16").plan.steps]
    end = ["find_nonfinite"] * 4 + ["sgd"] * 4 + ["next_scale", "count"]  # weights in three parts
    assert steps[-len(end) :] == end
    assert "sgd_update" not in steps


# ---------------------------------------------------------------- activations


def test_no_engine_is_asked_for_more_than_a_clip() -> None:
    """Another activation is a step after the convolution, and takes the residual with it."""
    module = nn.Sequential(nn.Conv2d(4, 8, 3), nn.GELU(), nn.Conv2d(8, 8, 1), nn.ReLU6())
    made, engines = built(module, "infer", "ieee", 2, 4, 8, 8)
    steps = [step.operation for step in made.plan.steps]
    assert steps == ["fetch", "convolution", "activation", "convolution"]
    clips = [operation.clip for operation in engines.operations]  # type: ignore[union-attr]
    assert clips == [(float("-inf"), float("inf")), (0.0, 6.0)]


def test_a_depthwise_convolution_takes_its_activation_in() -> None:
    module = nn.Sequential(nn.Conv2d(8, 8, 3, padding=1, groups=8), nn.SiLU())
    made, engines = built(module, "infer", "ieee", 2, 8, 6, 6)
    assert [step.operation for step in made.plan.steps] == ["fetch", "convolution"]
    (asked,) = engines.operations
    assert asked.activation is not None and asked.activation.name == "silu"


def test_a_convolution_alone_gets_bias_and_activation_in_a_pass() -> None:
    module = nn.Sequential(nn.Conv2d(8, 8, 3, padding=1, groups=8), nn.SiLU())
    # What has a bias is slow, and passes over memory take no time.
    engines = TimedEngines(lambda operation: 1e6 if operation.bias else 1e3, passed=0.0)
    graph = lowered(module, "infer", (2, 8, 6, 6))
    made = build_plan(graph, cast("Engines", engines), TYPES["ieee"], 4)
    (asked,) = engines.operations
    assert isinstance(asked, products.Convolution)
    assert not asked.bias and asked.activation is None
    alone, after = made.plan.steps[1:]
    assert len(alone.reads) == 2 and alone.writes[0] in after.reads
    assert [operand.shape for operand in after.reads] == [(2, 8, 6, 6), (8,)]
    assert "a + b" in cast("KernelCall", made.calls[-1]).kernel.source


def test_a_sum_has_its_activation_in_its_own_step() -> None:
    def sum_of(activation: Activation | None) -> Node:
        operator = Binary(function="add", a=Ref(name="x"), b=Ref(name="z"), activation=activation)
        return node(operator, value("y", 2, 3))

    for activation, formula in ((None, "x0 + x1"), (Activation(name="tanh"), "tanhf((x0 + x1))")):
        whole = Graph(
            name="sum", mode="infer", nodes=(sum_of(activation),),
            inputs=(given("x", 2, 3), given("z", 2, 3)),
            outputs=(GraphOutput(name="y", kind="output", target="0"),),
        )  # fmt: skip
        made = planned(whole, "ieee")
        last = cast("KernelCall", made.calls[-1])
        assert f"static_cast<float>({formula})" in last.kernel.code


# ---------------------------------------------------------------- counters


class Again(nn.Module):
    """Integers of the state that are no counters: a table's indices, one more of them, and two
    more of what else there is."""

    index: torch.Tensor
    steps: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Parameter(torch.rand(9, 4))
        self.norm = nn.BatchNorm1d(4)
        self.register_buffer("index", torch.arange(4))
        self.register_buffer("steps", torch.zeros((), dtype=torch.int64))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.steps += 2
        return self.norm(x * self.table[self.index].sum(0) + self.table[self.index + 1].sum(0))


def test_only_counters_are_counted() -> None:
    made, _ = built(Again(), "train", "default", 6, 4)
    counted = [
        target
        for (kind, target), tensor in made.inputs.items()
        if kind == "buffer" and made.plan.buffers[tensor.buffer].place == "counter"
    ]
    assert counted == ["norm.num_batches_tracked"]


def test_a_layer_that_runs_twice_counts_twice() -> None:
    norm = nn.BatchNorm1d(4)
    made, _ = built(nn.Sequential(norm, nn.Linear(4, 4), norm), "train", "default", 6, 4)
    names = [made.plan.buffers[t.buffer].place for t in made.inputs.values()]
    assert names.count("counter") == 1
    operations = [step.operation for step in made.plan.steps]
    assert operations.count("count") == operations.count("binary") == 1


# ---------------------------------------------------------------- gradients


class OwnDepthwise(AskedEngines):
    """No library has an engine for depthwise convolutions, whose gradients are float32 then."""

    gpu = None

    def choose(self, operation: Convolution | Problem) -> Any:
        depthwise = isinstance(operation, Convolution) and operation.depthwise
        return None if depthwise else super().choose(operation)


def test_gradients_that_are_elsewhere_are_copied_together() -> None:
    layers = [nn.Conv2d(8, 8, 3, padding=1, groups=8, bias=False) for _ in range(3)]
    graph = lowered(nn.Sequential(*layers, nn.Flatten()), "train", (2, 8, 6, 6))
    made = build_plan(graph, cast("Engines", OwnDepthwise()), TYPES["bf16"], 4)
    assert_sound(made)
    steps = [step for step in made.plan.steps if step.phase == "update"]
    copies = [step for step in steps if step.operation == "copy"]
    assert [len(step.writes) for step in copies] == [3]


# ---------------------------------------------------------------- shapes alone


def test_a_transposed_convolution_writes_no_image_for_its_shape() -> None:
    """It is the gradient of a convolution with regard to an image, of which nothing is read."""
    module = nn.Sequential(nn.ConvTranspose2d(4, 8, 2, 2), nn.Flatten())
    made, _ = built(module, "train", "bf16", 2, 4, 3, 3)
    assert_sound(made)
    assert "fill" not in {step.operation for step in made.plan.steps}
