"""The operators of `onednn`: found by looking into a folder, and asked before anything is built."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from golow.levels.direct.onednn import operators
from golow.levels.direct.onednn.bindings.library import OneDnnError
from golow.levels.direct.onednn.level import probe
from golow.levels.direct.onednn.planning import implemented
from golow.levels.direct.onednn.steps import activations
from golow.levels.direct.onednn.steps.eltwise import functions_of_elements
from golow.lower.ir import operator
from golow.lower.ir.graph import Graph, GraphInput, GraphOutput, Node, Ref, Value
from golow.lower.ir.operator import activation_functions, modules_in, vocabulary
from golow.lower.operators import activations as meanings
from golow.lower.operators.binary import Binary
from golow.lower.operators.sgd_update import SgdUpdate
from golow.records.errors import Unsupported
from golow.records.workload import Mode
from support.graphs.operator_examples import not_implemented

needs_package = pytest.mark.skipif(not probe().available, reason="oneDNN is not installed")

# ---------------------------------------------------------------- what there is


def test_every_operator_of_the_vocabulary_is_implemented() -> None:
    """But for those whose examples say that they are not."""
    missing = vocabulary().keys() - implemented().keys()
    assert missing == not_implemented("onednn")
    assert implemented().keys() <= vocabulary().keys()
    assert all(known.operator is vocabulary()[name] for name, known in implemented().items())


def test_every_activation_has_an_algorithm() -> None:
    assert functions_of_elements().keys() == activation_functions().keys()


def test_every_file_of_the_folder_is_an_operator_or_an_activation() -> None:
    for module in modules_in(operators):
        if module is not activations:
            assert hasattr(module, "IMPLEMENTATIONS") != hasattr(module, "ACTIVATIONS"), module


# ---------------------------------------------------------------- one file more

MEANING = """
from golow.lower.ir.graph import Activation
from golow.lower.ir.operator import ActivationFunction
from golow.lower.operators.activation import backward_of_argument, of_call

MISH = Activation(name="mish")


def forward(x):
    import torch
    return torch.nn.functional.mish(x)


def backward(gradient, value):
    import torch
    return torch.ops.aten.mish_backward.default(gradient, value)


FUNCTION = ActivationFunction("mish", forward, backward)
SPELLINGS = {
    "aten.mish.default": lambda call: of_call(call, MISH),
    "aten.mish_backward.default": lambda call: backward_of_argument(call, MISH),
}
"""
ALGORITHM = """
from golow.levels.direct.onednn.steps.eltwise import Eltwise

ACTIVATIONS = {"mish": Eltwise("mish")}
"""


@pytest.fixture
def mish(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A further file among the activations of the vocabulary, and of the level."""
    for package, text in ((meanings, MEANING), (activations, ALGORITHM)):
        plant(package, "mish", text, tmp_path / package.__name__, monkeypatch)
    forget()
    yield
    monkeypatch.undo()
    forget()


def plant(
    package: ModuleType, name: str, text: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder.mkdir()
    (folder / f"{name}.py").write_text(text)
    monkeypatch.setattr(package, "__path__", [*package.__path__, str(folder)])
    whole = f"{package.__name__}.{name}"
    monkeypatch.setitem(sys.modules, whole, None)  # so that it goes at the end
    monkeypatch.delitem(sys.modules, whole)


def forget() -> None:
    """Look into the folders again."""
    for found in (operator.activation_functions, operator.spellings, functions_of_elements):
        found.cache_clear()


@needs_package
@pytest.mark.usefixtures("mish")
@pytest.mark.parametrize("mode", ["infer", "train"])
def test_an_activation_is_a_file_in_each_folder(mode: Mode) -> None:
    """Alone, and taken in by the convolution and the linear layer before it."""
    from support.direct.in_process import assert_right
    from support.direct.onednn_in_process import compute, lower

    module = nn.Sequential(
        nn.Conv2d(3, 16, 3), nn.Mish(), nn.MaxPool2d(2), nn.Mish(), nn.Flatten(),
        nn.Linear(16 * 4, 8), nn.Mish(),
    )  # fmt: skip
    network = lower(module, torch.randn(4, 3, 6, 6), mode)
    assert not [node.op for node in network.graph.nodes if node.op.startswith("aten.")]
    assert_right(network, compute(network))


def test_the_file_is_gone_again() -> None:
    assert "mish" not in activation_functions()
    assert "mish" not in functions_of_elements()


# ---------------------------------------------------------------- while it is built


@needs_package
def test_what_the_library_refuses_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    from support.direct.onednn_in_process import Running, lower

    def refuse(builder: object, arguments: object) -> None:
        raise OneDnnError("dnnl_reduction_primitive_desc_create", 3)

    network = lower(nn.Sequential(nn.Linear(4, 4), nn.Softmax(1)), torch.randn(3, 4), "infer")
    softmax = implemented()["golow.softmax"]
    monkeypatch.setitem(implemented(), "golow.softmax", softmax._replace(build=refuse))
    with pytest.raises(Unsupported, match="unimplemented") as raised:
        Running(network)
    assert raised.value.reason.startswith("golow.softmax: ")
    assert (raised.value.level, raised.value.module) == ("onednn", "1")


@needs_package
def test_a_result_in_another_order_is_read_again() -> None:
    from support.direct.onednn_in_process import Running, lower

    class Both(nn.Linear):
        def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
            found = super().forward(x)
            return found, found.t()

    network = lower(Both(6, 4), torch.randn(4, 6), "infer")
    running = Running(network)
    read = running.execution.reader(running.built.outputs["output", "1"][0])
    found = []
    for batch, prepared in enumerate(network.prepared.batches[:2]):
        running.point_at(batch)
        running.execution.run()
        found.append((read(), network.prepared.module(*prepared.inputs)[1]))
    for array, wanted in found:
        torch.testing.assert_close(torch.from_numpy(array), wanted.detach())


@needs_package
@pytest.mark.parametrize("generates", [True, False])
@pytest.mark.parametrize("read_later", [False, True])
def test_a_parameter_that_is_read_after_its_update(read_later: bool, generates: bool) -> None:
    """The update goes over the parameter's own memory only where nobody needs the old content."""
    from golow.levels.direct.onednn.bindings.constants import ANY
    from golow.levels.direct.onednn.planning import build_plan
    from golow.levels.direct.onednn.run.execution import Execution
    from golow.levels.direct.onednn.steps.built_plan import Switches
    from support.direct.onednn_in_process import ENGINE, workshop

    graph = update_graph(read_later)
    built = build_plan(graph, ENGINE, lambda _: ANY, Switches(0), generates)
    name = "sgd_update" if generates else "new_parameter"
    (target,) = (step.writes[-1].buffer for step in built.plan.steps if step.operation == name)
    own = built.inputs[("parameter", "weight")].buffer
    assert (target == own) is not read_later
    execution = Execution(
        built, ENGINE, lambda kind, target: np.empty(0), workshop() if generates else None
    )
    old, momentum, gradient = (np.linspace(k, k + 1, 6, dtype=np.float32) for k in (1, 2, 3))
    execution.write(built.inputs[("parameter", "weight")], old)
    execution.write(built.inputs[("momentum", "weight")], momentum)
    execution.write(built.inputs[("learning_rate", "")], np.array([-0.5], np.float32))
    execution.pointing({("input", "0"): gradient})()
    execution.run()
    moved = 0.9 * momentum.astype(float) + gradient + 0.1 * old
    found = {key: execution.read(tensor) for key, (tensor, _) in built.outputs.items()}
    assert np.allclose(found[("momentum", "weight")], moved, atol=1e-6)
    assert np.allclose(execution.read(built.inputs[("parameter", "weight")]), old - 0.5 * moved)
    if read_later:
        assert np.allclose(found[("output", "0")], 2 * old)


def update_graph(read_later: bool) -> Graph:
    def value(name: str, *shape: int) -> Value:
        return Value(name=name, shape=shape, dtype="float32")

    update = SgdUpdate(
        parameter=Ref(name="w"), momentum=Ref(name="m"), gradient=Ref(name="g"),
        learning_rate=Ref(name="rate"), factor=0.9, weight_decay=0.1,
    )  # fmt: skip
    double = Binary(function="multiply", a=Ref(name="w"), b=2.0)
    empty = Node(name="update", op="", arguments=())
    nodes = [operator.written(empty, update, outputs=(value("m_new", 6), value("w_new", 6)))]
    outputs = [
        GraphOutput(name="m_new", kind="momentum", target="weight"),
        GraphOutput(name="w_new", kind="parameter", target="weight"),
    ]
    if read_later:
        nodes.append(operator.written(empty, double, outputs=(value("twice", 6),)))
        outputs.append(GraphOutput(name="twice", kind="output", target="0"))
    return Graph(
        name="update",
        mode="train",
        inputs=(
            GraphInput(value=value("w", 6), kind="parameter", target="weight"),
            GraphInput(value=value("m", 6), kind="momentum", target="weight"),
            GraphInput(value=value("g", 6), kind="input", target="0"),
            GraphInput(value=value("rate"), kind="learning_rate", target=""),
        ),
        nodes=tuple(nodes),
        outputs=tuple(outputs),
    )
