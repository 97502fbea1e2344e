"""What the library or the level cannot compute is refused before anything is built."""

from __future__ import annotations

from typing import Any, NamedTuple

import pytest

from golow.levels.direct.onednn.bindings import library as binding
from golow.levels.direct.onednn.level import probe
from golow.levels.direct.onednn.planning import require_runnable
from golow.lower.ir import operator
from golow.lower.ir.graph import Activation, Graph, GraphInput, GraphOutput, Node, Ref, Value
from golow.lower.ir.operator import Operator
from golow.lower.operators.activation import Activate, ActivateBackward
from golow.lower.operators.batch_norm import BatchNorm, BatchNormBackward
from golow.lower.operators.binary import Binary
from golow.lower.operators.convolution import Convolution
from golow.lower.operators.dropout import DropoutBackward
from golow.lower.operators.linear import Linear
from golow.lower.operators.loss_gradient import LossGradient
from golow.lower.operators.max_pool import MaxPool, MaxPoolBackward
from golow.lower.operators.nll_loss import NllLoss, NllLossBackward
from golow.lower.operators.permute import Permute
from golow.lower.operators.pixel_unshuffle import PixelUnshuffle
from golow.lower.operators.reshape import Reshape
from golow.lower.operators.softmax import Softmax
from golow.records.errors import Unsupported

needs_package = pytest.mark.skipif(not probe().available, reason="oneDNN is not installed")


IMAGE, VECTOR = (2, 16, 4, 4), (16,)
X, Y, V = Ref(name="x"), Ref(name="y"), Ref(name="v")
RELU, TAN = Activation(name="relu"), Activation(name="tan")
WINDOW: dict[str, Any] = {"kernel": (2, 2), "stride": (2, 2), "padding": (0, 0)}
NORM: dict[str, Any] = {
    "x": X, "scale": V, "shift": V, "running_mean": V, "running_variance": V, "momentum": 0.1,
    "epsilon": 1e-5,
}  # fmt: skip
NORM_GRADIENT: dict[str, Any] = {
    "gradient": Y, "x": X, "scale": V, "mean": Ref(name="out_1"), "inverse_deviation": V,
    "epsilon": 1e-5, "wanted": (True, True, True, False),
}  # fmt: skip
LOSS: dict[str, Any] = {"logs": V, "target": Ref(name="n"), "ignored": -100}
GRADIENT: dict[str, Any] = {"gradient": V, "total_weight": V}


class Refused(NamedTuple):
    """An operator, one that differs from it and is allowed, and the words of the refusal.

    shapes: of the values that are others here than in `make_graph`.
    """

    operator: Operator
    allowed: Operator | None
    words: str
    shapes: dict[str, tuple[tuple[int, ...], str]] = {}
    before: tuple[Operator, ...] = ()
    read: tuple[int, ...] = (0,)


INTEGERS = {"x": (IMAGE, "int64"), "y": (IMAGE, "int64")}
MATRIX = {"v": ((4, 16), "float32"), "n": ((4,), "int64")}

REFUSED = {
    "an activation": Refused(
        Activate(x=X, activation=TAN), Activate(x=X, activation=RELU), "golow.activate with the"
    ),
    "an activation of integers": Refused(
        Activate(x=X, activation=RELU), None, "golow.activate on int64", INTEGERS
    ),
    "an activation's gradient": Refused(
        ActivateBackward(gradient=X, value=Y, activation=TAN, from_result=False),
        ActivateBackward(gradient=X, value=Y, activation=RELU, from_result=False),
        "golow.activate_backward with the activation tan",
    ),
    "an activation's gradient from its result": Refused(
        ActivateBackward(
            gradient=X, value=Y, activation=Activation(name="silu"), from_result=True
        ),
        ActivateBackward(gradient=X, value=Y, activation=RELU, from_result=True),
        "silu from its result",
    ),
    "a convolution's activation": Refused(
        Convolution(x=X, weight=Ref(name="w"), activation=TAN),
        Convolution(x=X, weight=Ref(name="w"), activation=RELU),
        "golow.convolution with the activation tan",
    ),
    "a linear layer's activation": Refused(
        Linear(x=V, weight=Ref(name="w"), activation=TAN),
        Linear(x=V, weight=Ref(name="w"), activation=RELU),
        "golow.linear with the activation tan",
        {"w": ((8, 16), "float32")},
    ),
    "a sum's activation": Refused(
        Binary(function="add", a=X, b=Y, activation=TAN),
        Binary(function="add", a=X, b=Y, activation=RELU),
        "golow.binary with the activation tan",
    ),
    "an activation of a sum with a number": Refused(
        Binary(function="add", a=X, b=1.0, activation=RELU),
        Binary(function="add", a=X, b=1.0),
        "golow.binary of a number, with an activation",
    ),
    "arithmetic with integers": Refused(
        Binary(function="multiply", a=X, b=2),
        Binary(function="add", a=X, b=2),
        "golow.binary on int64",
        INTEGERS,
    ),
    "an integer counter and half": Refused(
        Binary(function="add", a=X, b=0.5), Binary(function="add", a=X, b=1), "int64", INTEGERS
    ),
    "a sum of integers": Refused(
        Binary(function="add", a=X, b=Y), None, "golow.binary on int64", INTEGERS
    ),
    "division by zero": Refused(
        Binary(function="divide", a=X, b=0.0), Binary(function="divide", a=X, b=2.0), "by zero"
    ),
    "a widened first argument": Refused(
        Binary(function="subtract", a=Y, b=X),
        Binary(function="add", a=Y, b=X),
        "golow.binary that broadcasts",
        {"y": ((16, 1, 1), "float32")},
    ),
    "two widened arguments": Refused(
        Binary(function="add", a=X, b=Y), None, "golow.binary that broadcasts",
        {"x": ((2, 16, 1, 4), "float32"), "y": ((16, 4, 1), "float32")},
    ),
    "indices with a reader": Refused(
        MaxPool(x=X, **WINDOW, dilation=(1, 1), ceil=False, indices=True),
        MaxPool(x=X, **WINDOW, dilation=(1, 1), ceil=False, indices=False),
        "golow.max_pool whose result 1 is read by output",
        read=(0, 1),
    ),
    "indices of somebody": Refused(
        MaxPoolBackward(
            gradient=Y, x=X, indices=Ref(name="n"), **WINDOW, dilation=(1, 1), ceil=False
        ),
        None,
        "golow.max_pool_backward of an input",
    ),
    "a norm with a residual": Refused(
        BatchNorm(**NORM, residual=Y), BatchNorm(**NORM), "golow.batch_norm with a residual"
    ),
    "a norm's activation": Refused(
        BatchNorm(**NORM, activation=Activation(name="clip", numbers=(0.0, 6.0))),
        BatchNorm(**NORM, activation=RELU),
        "golow.batch_norm with the activation clip",
    ),
    "a norm's gradient from two": Refused(
        BatchNormBackward(**NORM_GRADIENT, second=Y),
        BatchNormBackward(**NORM_GRADIENT),
        "golow.batch_norm_backward of two gradients",
        before=(BatchNorm(**NORM),),
    ),
    "a norm's gradient for a residual": Refused(
        BatchNormBackward(**NORM_GRADIENT), None, "golow.batch_norm_backward with a gradient",
        before=(BatchNorm(**NORM),), read=(0, 3),
    ),
    "a norm's gradient of another activation": Refused(
        BatchNormBackward(**NORM_GRADIENT, result=X, activation=Activation(name="tanh")),
        BatchNormBackward(**NORM_GRADIENT, result=X, activation=RELU),
        "golow.batch_norm_backward with the activation tanh",
        before=(BatchNorm(**NORM),),
    ),
    "a norm's gradient with a relu, without a norm": Refused(
        BatchNormBackward(**{**NORM_GRADIENT, "mean": V}, result=X, activation=RELU),
        BatchNormBackward(**{**NORM_GRADIENT, "mean": V}),
        "golow.batch_norm_backward of an",
    ),
    "a norm's gradient after another operator": Refused(
        BatchNormBackward(**{**NORM_GRADIENT, "mean": Ref(name="out_0")}),
        None,
        "golow.batch_norm_backward of a result of golow.permute",
        before=(Permute(x=V, order=(0,)),),
    ),
    "a loss's targets": Refused(
        NllLoss(**{**LOSS, "target": Ref(name="w")}, reduction="mean"),
        NllLoss(**LOSS, reduction="mean"),
        "golow.nll_loss with targets of float32",
        MATRIX,
    ),
    "a loss's gradient's targets": Refused(
        NllLossBackward(**{**LOSS, "target": Ref(name="w")}, **GRADIENT, reduction="sum"),
        NllLossBackward(**LOSS, **GRADIENT, reduction="sum"),
        "golow.nll_loss_backward with targets of float32",
        MATRIX,
    ),
    "softmax of integers": Refused(
        Softmax(x=X, axis=1, log=False), None, "golow.softmax on int64", INTEGERS
    ),
    "dropout's gradient of integers": Refused(
        DropoutBackward(gradient=X, mask=Ref(name="n"), scale=2.0),
        DropoutBackward(gradient=V, mask=Ref(name="n"), scale=2.0),
        "golow.dropout_backward on int64",
        INTEGERS,
    ),
    "a loss of integers": Refused(
        LossGradient(dtype="int64"), LossGradient(dtype="float32"), "golow.loss_gradient of int64"
    ),
    "doubles": Refused(
        Reshape(x=X, shape=(32, 16)), None, "golow.reshape on float64", {"x": (IMAGE, "float64")}
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_is_refused_without_the_library(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def loaded() -> None:
        raise AssertionError("the library was loaded")

    monkeypatch.setattr(binding, "library", loaded)
    case = REFUSED[name]
    with pytest.raises(Unsupported) as raised:
        require_runnable(make_graph(case, case.operator))
    assert case.words in raised.value.reason
    assert case.operator.op() in raised.value.reason
    assert (raised.value.level, raised.value.node) == ("onednn", "planted")
    assert raised.value.module == "body.3"
    if case.allowed is not None:
        require_runnable(make_graph(case, case.allowed))


def make_graph(case: Refused, tried: Operator) -> Graph:
    """The operator as the last node. Every result in ``case.read`` is an output of the graph."""
    given: dict[str, tuple[tuple[int, ...], str]] = {
        "x": (IMAGE, "float32"), "y": (IMAGE, "float32"), "v": (VECTOR, "float32"),
        "w": ((16, 16, 1, 1), "float32"), "n": (IMAGE, "int64"), **case.shapes,
    }  # fmt: skip
    inputs = tuple(
        GraphInput(
            value=Value(name=name, shape=shape, dtype=dtype), kind="input", target=str(number)
        )
        for number, (name, (shape, dtype)) in enumerate(given.items())
    )
    dtype = next((given[r.name][1] for r in operator.references(tried).values()), "float32")
    outputs = tuple(
        Value(name=f"result_{i}", shape=IMAGE, dtype=dtype) if i in case.read else None
        for i in range(tried.results)
    )
    empty = Node(name="planted", op="", arguments=(), module="body.3")
    nodes = (
        *(before(each) for each in case.before),
        operator.written(empty, tried, outputs=outputs),
    )
    ends = tuple(
        GraphOutput(name=value.name, kind="output", target=str(index))
        for index, value in enumerate(outputs)
        if value is not None
    )
    return Graph(name="planted", mode="train", inputs=inputs, nodes=nodes, outputs=ends)


def before(each: Operator) -> Node:
    """A node whose results are ``out_0``, ``out_1`` and so on."""
    outputs = tuple(
        Value(name=f"out_{i}", shape=VECTOR, dtype="float32") if i != 2 else None
        for i in range(each.results)
    )
    return operator.written(Node(name="maker", op="", arguments=()), each, outputs=outputs)


def test_a_norm_gives_its_deviation_or_keeps_the_variance_for_its_gradient() -> None:
    """Not both: the gradient in the same graph reads the variance in the deviation's place."""
    norm = BatchNorm(**NORM)
    graph = make_graph(Refused(norm, None, "", read=(0, 1, 2)), norm)
    require_runnable(graph)
    own = {"mean": Ref(name="result_1"), "inverse_deviation": Ref(name="result_2")}
    gradient = BatchNormBackward(**{**NORM_GRADIENT, **own})
    made = (Value(name="inner", shape=IMAGE, dtype="float32"), None, None, None)
    node = operator.written(Node(name="after", op="", arguments=()), gradient, outputs=made)
    both = Graph(
        name="both", mode="train", inputs=graph.inputs, nodes=(*graph.nodes, node),
        outputs=graph.outputs,
    )  # fmt: skip
    with pytest.raises(Unsupported, match="whose result 2 is read by output"):
        require_runnable(both)


def test_the_first_that_cannot_be_is_named() -> None:
    case = REFUSED["doubles"]
    one, other = make_graph(case, case.operator), make_graph(case, PixelUnshuffle(x=X, factor=2))
    renamed = operator.written(one.nodes[0], case.operator, name="earlier", outputs=())
    both = Graph(
        name="both", mode="infer", inputs=one.inputs, nodes=(renamed, *other.nodes), outputs=()
    )
    with pytest.raises(Unsupported, match=r"golow\.reshape on float64 \(node earlier"):
        require_runnable(both)
