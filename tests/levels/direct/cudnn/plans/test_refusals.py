"""What `cudnn` refuses before anything is built: without GPU, libraries and worker, and by name."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import pytest
import torch
from torch import nn

from golow.levels.direct.cudnn import level as cudnn
from golow.levels.direct.cudnn.planning import DTYPES, build_plan, implemented, require_runnable
from golow.levels.direct.cudnn.problems.precision import TYPES
from golow.levels.direct.implementation import refusals
from golow.lower.ir.graph import (
    Activation,
    Graph,
    GraphInput,
    GraphOutput,
    Node,
    Ref,
    Value,
)
from golow.lower.ir.operator import Operator, vocabulary
from golow.lower.operators.activation import Activate, ActivateBackward
from golow.lower.operators.average_pool import AveragePool
from golow.lower.operators.batch_norm import BatchNorm, BatchNormBackward
from golow.lower.operators.binary import Binary
from golow.lower.operators.concatenate import Concatenate
from golow.lower.operators.cross_entropy import CrossEntropy
from golow.lower.operators.linear import Linear
from golow.lower.operators.loss_gradient import LossGradient
from golow.lower.operators.max_pool import MaxPool, MaxPoolBackward
from golow.lower.operators.nll_loss import NllLoss
from golow.lower.operators.permute import Permute
from golow.lower.operators.reduce import Reduce
from golow.lower.operators.sgd_update import SgdUpdate
from golow.lower.operators.softmax import Softmax
from golow.records.errors import Unsupported
from golow.records.workload import Mode
from golow.workload.bundle import Bundle
from support.direct.cudnn_plans import AskedEngines, lowered
from support.graphs.operator_examples import not_implemented
from support.graphs.shaped_nodes import given, node, value
from support.models.many_networks import Function

if TYPE_CHECKING:
    from golow.levels.direct.cudnn.engines.engines import Engines

X = Ref(name="x")
IMAGE = (2, 8, 6, 6)


def graph(inputs: Sequence[GraphInput], *nodes: Node, mode: Mode = "infer") -> Graph:
    """The last node's first value leaves."""
    last = next((item.name for item in nodes[-1].outputs if item is not None), "")
    outputs = (GraphOutput(name=last, kind="output", target="0"),)
    return Graph(name="made", mode=mode, inputs=tuple(inputs), nodes=nodes, outputs=outputs)


def reason(*nodes: Node, inputs: Sequence[GraphInput], mode: Mode = "infer") -> str:
    """Why the level refuses the last node; empty where it does not."""
    found = list(refusals("cudnn", graph(inputs, *nodes, mode=mode), implemented(), DTYPES))
    assert all((refused.node, refused.module) == (nodes[-1].name, "layer") for refused in found)
    assert all(nodes[-1].op in refused.reason for refused in found)
    return found[0].reason if found else ""


POOL: dict[str, Any] = {"kernel": (2, 2), "stride": (2, 2), "padding": (0, 0)}
MASK = given("mask", *IMAGE, dtype="bool")
STATISTICS = [given(name, 8, kind="buffer") for name in ("mean", "variance")]
NORM: dict[str, Any] = {"scale": None, "shift": None, "epsilon": 1e-5}
TRAINING: dict[str, Any] = {
    **NORM, "momentum": 0.1,
    "running_mean": Ref(name="mean"), "running_variance": Ref(name="variance"),
}  # fmt: skip
RUNNING: dict[str, Any] = {**NORM, "mean": Ref(name="mean"), "variance": Ref(name="variance")}
BACKWARD: dict[str, Any] = {
    "gradient": X, "x": X, "scale": None, "mean": Ref(name="mean"), "epsilon": 1e-5,
    "inverse_deviation": Ref(name="variance"), "wanted": (True, False, False, False),
}  # fmt: skip


def normed(*shape: int) -> tuple[Value | None, ...]:
    return (value("y", *shape), None, None, None, None)


REFUSED: dict[str, tuple[Operator, tuple[Value | None, ...], tuple[int, ...], str]] = {
    "an activation without a file": (
        Activate(x=X, activation=Activation(name="mish")),
        (value("y", *IMAGE),), IMAGE, "the activation mish",
    ),
    "an activation without a file in a layer": (
        Linear(x=X, weight=Ref(name="weight"), activation=Activation(name="mish")),
        (value("y", 2, 3),), (2, 8), "the activation mish",
    ),
    "a gradient from what does not tell": (
        ActivateBackward(gradient=X, value=X, activation=Activation(name="gelu"), from_result=True),
        (value("y", *IMAGE),), IMAGE, "gelu has no gradient from its result",
    ),
    "arithmetic that broadcasts both": (
        Binary(function="add", a=X, b=Ref(name="other")),
        (value("y", 2, 8, 6, 6),), (2, 1, 6, 6), "broadcasts both",
    ),
    "a sum for too many rows": (
        Reduce(function="sum", x=X, axes=(1,), keep=False),
        (value("y", 2**31, 8),), (2**31, 2, 8), "2147483648 rows",
    ),
    "max pooling with too many taps": (
        MaxPool(x=X, kernel=(16, 16), stride=(1, 1), padding=(8, 8), dilation=(1, 1), ceil=False,
                indices=False),
        (value("y", 2, 8, 7, 7),), IMAGE, "256 taps",
    ),
    "the gradient of pooling elsewhere": (
        MaxPoolBackward(gradient=X, x=X, indices=Ref(name="places"), dilation=(1, 1), ceil=False,
                        **POOL),
        (value("y", *IMAGE),), IMAGE, "of an input of the graph",
    ),
    "batch norm over volumes": (
        BatchNorm(x=X, **TRAINING), normed(2, 8, 3, 3, 3), (2, 8, 3, 3, 3), "over 5 axes",
    ),
    "a norm with an activation without a file": (
        BatchNorm(x=X, activation=Activation(name="mish"), **TRAINING),
        normed(*IMAGE), IMAGE, "the activation mish",
    ),
    "the gradient of a norm from a result that does not tell": (
        BatchNormBackward(result=X, activation=Activation(name="silu"), **BACKWARD),
        (value("y", *IMAGE), None, None, None), IMAGE, "from the result of silu",
    ),
    "the gradient of a residual before an activation that does not clip": (
        BatchNormBackward(activation=Activation(name="silu"), **BACKWARD),
        (value("y", *IMAGE), None, None, value("z", *IMAGE)), IMAGE, "a gradient for a residual",
    ),
    "the gradient of a norm elsewhere": (
        BatchNormBackward(result=X, activation=Activation(name="relu"), **BACKWARD),
        (value("y", *IMAGE), None, None, None), IMAGE, "of an input of the graph",
    ),
    "a loss's targets": (
        NllLoss(logs=X, target=Ref(name="mean"), reduction="mean", ignored=-100),
        (value("y"), None), (2, 8), "targets of float32",
    ),
    "the targets of a loss of scores": (
        CrossEntropy(x=X, target=Ref(name="mean"), reduction="mean", ignored=-100),
        (value("y"), None, None, None), (2, 8), "targets of float32",
    ),
}  # fmt: skip


def inputs(shape: tuple[int, ...]) -> list[GraphInput]:
    """x, and others that some of the operators read."""
    return [
        given("x", *shape), given("other", 2, 8, 1, 6), given("weight", 3, 8, kind="parameter"),
        given("target", 2, dtype="int64", kind="target"), MASK, *STATISTICS,
        given("places", 2, 8, 3, 3, dtype="int64"), given("counts", 4, dtype="int64"),
    ]  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_it_is_refused_by_operator_node_and_layer(name: str) -> None:
    operator, outputs, shape, words = REFUSED[name]
    assert words in reason(node(operator, *outputs), inputs=inputs(shape))


COUNTS = Ref(name="counts")
WHOLE = (value("y", 4, dtype="int64"),)


@pytest.mark.parametrize(
    ("operator", "outputs"),
    [
        (Activate(x=COUNTS, activation=Activation(name="relu")), WHOLE),
        (Binary(function="add", a=COUNTS, b=2), WHOLE),
        (Binary(function="multiply", a=COUNTS, b=1), WHOLE),
        (Reduce(function="mean", x=COUNTS, axes=(0,), keep=False), (value("y", dtype="int64"),)),
        (Softmax(x=COUNTS, axis=0, log=False), WHOLE),
    ],
)
def test_integers_are_not_computed_with(operator: Operator, outputs: tuple[Value, ...]) -> None:
    assert "on int64" in reason(node(operator, *outputs), inputs=inputs(IMAGE))


def test_parts_of_two_types_are_not_concatenated() -> None:
    parts = Concatenate(parts=(COUNTS, Ref(name="mean")), axis=0)
    found = reason(node(parts, value("y", 12)), inputs=inputs(IMAGE))
    assert "of float32 and int64" in found


def test_a_type_that_the_level_lacks_is_refused() -> None:
    double = [given("x", 4, dtype="float64")]
    activate = Activate(x=X, activation=Activation(name="relu"))
    assert "on float64" in reason(node(activate, value("y", 4, dtype="float64")), inputs=double)


def test_batches_are_counted() -> None:
    """Batch norm's counter in training, and the same again where a layer runs twice."""
    once = node(Binary(function="add", a=COUNTS, b=1), value("once", dtype="int64"))
    again = node(Binary(function="add", a=Ref(name="once"), b=1), value("twice", dtype="int64"))
    state = [given("counts", dtype="int64", kind="buffer")]
    assert reason(once, inputs=state, mode="train") == ""
    assert reason(once, again, inputs=state, mode="train") == ""
    assert reason(once, inputs=state) == ""
    two = node(Binary(function="add", a=COUNTS, b=2), value("once", dtype="int64"))
    assert "on int64" in reason(two, inputs=state, mode="train")


def test_indices_are_for_the_gradient_alone() -> None:
    pool = MaxPool(x=X, dilation=(1, 1), ceil=False, indices=True, **POOL)
    made = node(pool, value("y", 2, 8, 3, 3), value("chosen", 2, 8, 3, 3, dtype="int64"))
    backward = MaxPoolBackward(
        gradient=Ref(name="y"), x=X, indices=Ref(name="chosen"), dilation=(1, 1), ceil=False, **POOL
    )
    whole = [made, node(backward, value("dx", *IMAGE))]
    assert reason(*whole, inputs=inputs(IMAGE)) == ""
    places = node(pool, None, value("chosen", 2, 8, 3, 3, dtype="int64"))
    alone = [places, whole[1]]
    read = [given("y", 2, 8, 3, 3), *inputs(IMAGE)]
    assert reason(*alone, inputs=read) == ""
    turned = node(
        Permute(x=Ref(name="chosen"), order=(0, 1, 3, 2)), value("z", 2, 8, 3, 3, dtype="int64")
    )
    (refused,) = refusals("cudnn", graph(inputs(IMAGE), made, turned), implemented(), DTYPES)
    assert "whose result 1 is read by golow.permute" in refused.reason
    assert refused.node == "y"


RATES = [given(name, kind="learning_rate") for name in ("rate", "other_rate")]


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({}, ""),
        ({"factor": 0.8}, "factor differs"),
        ({"weight_decay": 0.1}, ""),
        ({"learning_rate": Ref(name="other_rate")}, ""),
    ],
)
def test_parameters_differ_in_decay_and_rate_alone(changed: dict[str, Any], words: str) -> None:
    def update(name: str, **changes: Any) -> Node:
        fields = {"factor": 0.9, "weight_decay": 0.0, "learning_rate": Ref(name="rate"), **changes}
        read = {field: Ref(name=f"{name}_{field}") for field in ("momentum", "gradient")}
        operator = SgdUpdate(parameter=Ref(name=name), **read, **fields)
        return node(operator, value(f"{name}_moved", 3), value(f"{name}_new", 3), phase="update")

    tensors = [
        given(f"{name}{part}", 3, kind="parameter")
        for name in ("a", "b")
        for part in ("", "_momentum", "_gradient")
    ]
    found = reason(update("a"), update("b", **changed), inputs=[*RATES, *tensors], mode="train")
    assert words in found and bool(words) == bool(found)


def test_an_average_that_the_kernel_takes_is_not_refused() -> None:
    pool = AveragePool(x=X, ceil=False, with_padding=True, divisor=None, **POOL)
    assert reason(node(pool, value("y", 2, 8, 3, 3)), inputs=inputs(IMAGE)) == ""


def test_the_level_has_the_whole_vocabulary() -> None:
    """But for those whose examples say that it does not."""
    missing = vocabulary().keys() - implemented().keys()
    assert missing == not_implemented("cudnn")


def test_the_gradient_of_a_loss_in_double_is_refused() -> None:
    begin = node(LossGradient(dtype="float64"), value("one", dtype="float64"), phase="backward")
    assert "on float64" in reason(begin, inputs=[])


# ---------------------------------------------------------------- in the parent


class Carried:
    """Stands for a bundle: a workload and its graph."""

    def __init__(self, module: nn.Module, *shape: int, mode: Mode = "infer") -> None:
        from golow.lower.ir.clean_up import CLEAN_UP
        from golow.lower.ir.pass_runner import apply
        from golow.workload.graph_capture import capture
        from golow.workload.prepare import prepare
        from golow.workload.request import Request

        prepared = prepare(Request(module, torch.randn(shape), mode=mode))
        self.workload, self.last = prepared.workload, None
        self.graph = apply(capture(prepared).graph, CLEAN_UP)


@pytest.mark.parametrize("mode", ["infer", "train"])
def test_no_worker_is_started_for_what_is_refused(mode: Mode, tmp_path: Path) -> None:
    """`prepare`, which starts it, raises, and has written nothing."""
    middle = nn.Sequential(nn.Conv2d(3, 4, 3), Function(torch.lgamma))
    bundle = Carried(nn.Sequential(middle, nn.Flatten()), 2, 3, 6, 6, mode=mode)
    with pytest.raises(Unsupported, match=r"aten\.lgamma\.default is not implemented") as raised:
        cudnn.prepare(cast("Bundle", bundle), "", tmp_path)
    assert (raised.value.level, raised.value.module) == ("cudnn", "0.1")
    assert raised.value.node
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("mode", ["infer", "train"])
def test_what_has_no_operator_is_refused_by_its_name(mode: Mode) -> None:
    module = nn.Sequential(nn.Linear(3, 3), nn.Sequential(nn.Identity(), Function(torch.lgamma)))
    with pytest.raises(Unsupported, match=r"aten\.lgamma\.default is not implemented") as raised:
        require_runnable(lowered(module, mode, (2, 3)))
    assert (raised.value.level, raised.value.module) == ("cudnn", "1.1")


class NoEngines(AskedEngines):
    """A library that has nothing for anybody."""

    def choose(self, operation: object) -> None:
        """No engine."""


def test_what_only_the_libraries_know_is_refused_when_a_plan_is_built() -> None:
    made = lowered(nn.Sequential(nn.Flatten(), nn.Linear(12, 3)), "infer", (2, 3, 4))
    require_runnable(made)
    with pytest.raises(Unsupported, match=r"no library has an engine for golow\.linear") as raised:
        build_plan(made, cast("Engines", NoEngines()), TYPES["ieee"], 1)
    assert (raised.value.level, raised.value.module) == ("cudnn", "1")
