"""Activations in the kernel of a convolution: what is asked of cuDNN, and when a plan takes it.
Nothing runs here."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import pytest
from torch import nn

from golow.levels.direct.cudnn.planning import build_plan
from golow.levels.direct.cudnn.problems import products
from golow.levels.direct.cudnn.problems.epilogue import FUNCTIONS, add_activation, takes_activation
from golow.levels.direct.cudnn.problems.gemm import Problem
from golow.levels.direct.cudnn.problems.precision import TYPES
from golow.levels.direct.cudnn.steps.built_plan import Built
from golow.levels.direct.formulas.activation_formulas import formulas
from golow.lower.ir.graph import Activation
from golow.records.workload import Precision
from support.direct.cudnn_plans import AskedEngines, TimedEngines, lowered

if TYPE_CHECKING:
    from golow.levels.direct.cudnn.engines.engines import Engines


def timed(activating: float) -> TimedEngines:
    """With an activation they take so many nanoseconds, without 1000, and a pass over memory takes
    3000 more than a launch."""

    def nanoseconds(operation: products.Convolution | Problem) -> float:
        alone = isinstance(operation, Problem) or operation.activation is None
        return 1000.0 if alone else activating

    return TimedEngines(nanoseconds)


def planned(activation: nn.Module, engines: AskedEngines, **layer: int) -> Built:
    module = nn.Sequential(nn.Conv2d(8, 8, 3, **layer), activation)
    graph = lowered(module, "infer", (2, 8, 6, 6))
    return build_plan(graph, cast("Engines", engines), TYPES["bf16"], 4)


def asked(engines: AskedEngines) -> list[str]:
    """The activations of the convolutions for which engines were chosen."""
    operations = [item for item in engines.operations if not isinstance(item, Problem)]
    return [item.activation.name if item.activation else "" for item in operations]


@pytest.mark.parametrize("activation", [nn.SiLU(), nn.GELU(), nn.GELU("tanh"), nn.Sigmoid()])
def test_the_faster_of_one_kernel_and_two_is_taken(activation: nn.Module) -> None:
    fast, slow = timed(5000.0), timed(7000.0)
    made = planned(activation, fast)
    assert [step.operation for step in made.plan.steps] == ["fetch", "convolution"]
    assert asked(fast)[0] in FUNCTIONS and len(asked(fast)) == 1
    made = planned(activation, slow)
    assert [step.operation for step in made.plan.steps] == ["fetch", "convolution", "activation"]
    assert asked(slow) == [""]


@pytest.mark.parametrize("bias", [False, True])
def test_a_linear_layer_with_its_activation_is_a_convolution_of_pixels(bias: bool) -> None:
    module = nn.Sequential(nn.Linear(16, 24, bias=bias), nn.GELU(), nn.Linear(24, 8))
    graph = lowered(module, "infer", (4, 5, 16))
    fast, slow = timed(5000.0), timed(7000.0)
    for engines, passes in ((fast, 0), (slow, 1)):
        made = build_plan(graph, cast("Engines", engines), TYPES["bf16"], 4)
        steps = [step.operation for step in made.plan.steps]
        assert steps == ["fetch", "linear", *["activation"] * passes, "linear"]
    assert asked(slow) == []
    [found] = [item for item in fast.operations if not isinstance(item, Problem)]
    assert (found.image, found.output) == ((20, 16, 1, 1), (20, 24, 1, 1))
    assert (found.bias, found.activation) == (bias, Activation(name="gelu"))


@pytest.mark.parametrize(("precision", "joined"), [("bf16", True), ("ieee", False)])
def test_gelu_by_tanh_is_in_the_kernel_of_a_product(precision: Precision, joined: bool) -> None:
    module = nn.Sequential(nn.Linear(16, 24), nn.GELU("tanh"), nn.Linear(24, 8))
    graph = lowered(module, "infer", (4, 5, 16))
    engines = AskedEngines()
    made = build_plan(graph, cast("Engines", engines), TYPES[precision], 4)
    apart = [] if joined else ["activation"]
    taken = [step.operation for step in made.plan.steps if step.operation != "fetch"]
    assert taken == ["linear", *apart, "linear"]
    asked_for = [item.gelu for item in engines.operations if isinstance(item, Problem)]
    assert asked_for == [joined, False]


@pytest.mark.parametrize(("within", "joined"), [(5000.0, True), (7000.0, False)])
def test_gelu_by_tanh_is_there_if_that_is_faster(within: float, joined: bool) -> None:
    def nanoseconds(operation: products.Convolution | Problem) -> float:
        if isinstance(operation, Problem):
            return within if operation.gelu else 1000.0
        return float("inf")

    module = nn.Sequential(nn.Linear(16, 24), nn.GELU("tanh"), nn.Linear(24, 8))
    engines = cast("Engines", TimedEngines(nanoseconds))
    made = build_plan(lowered(module, "infer", (4, 5, 16)), engines, TYPES["bf16"], 4)
    assert ("activation" in [step.operation for step in made.plan.steps]) is not joined


def test_without_timing_they_are_apart() -> None:
    engines = AskedEngines()
    made = planned(nn.SiLU(), engines)
    assert [step.operation for step in made.plan.steps] == ["fetch", "convolution", "activation"]
    assert asked(engines) == [""]


def test_what_no_engine_could_compute_is_apart() -> None:
    engines = timed(float("inf"))
    made = planned(nn.SiLU(), engines)
    assert [step.operation for step in made.plan.steps][1:] == ["convolution", "activation"]
    assert asked(engines) == [""]


@pytest.mark.parametrize("activation", [nn.Hardswish(), nn.ELU(), nn.LeakyReLU()])
def test_activations_that_only_golow_has_are_asked_for(activation: nn.Module) -> None:
    engines = timed(5000.0)
    made = planned(activation, engines)
    assert [step.operation for step in made.plan.steps] == ["fetch", "convolution"]
    [name] = asked(engines)
    assert name and not takes_activation(Activation(name=name))


def test_functions_that_only_clip_are_no_activations() -> None:
    assert not takes_activation(None)
    for name in FUNCTIONS:
        assert takes_activation(Activation(name=name))
        assert formulas()[name].limits is None


class Recording:
    """Stands for an operation graph: remembers what is added to it."""

    def __init__(self) -> None:
        self.added: list[str] = []

    def __getattr__(self, name: str) -> Any:
        def add(input: str) -> str:
            self.added.append(name)
            return f"{name} of {input}"

        return add


def test_the_activation_follows_in_the_operation_graph() -> None:
    graph = Recording()
    assert add_activation(graph, "y", None) == "y"
    assert add_activation(graph, "y", Activation(name="silu")) == "swish of y"
    assert graph.added == ["swish"]


def library() -> Any:
    """cuDNN's front end; skips the test where it or the library is not installed."""
    pytest.importorskip("cuda.core", reason="cuda-core is not installed")
    try:
        return pytest.importorskip("cudnn", reason="nvidia-cudnn-frontend is not installed")
    except OSError as error:
        pytest.skip(str(error))


@pytest.mark.parametrize("name", FUNCTIONS)
def test_the_front_end_takes_the_graph(name: str) -> None:
    """As far as it can be seen without a GPU: shapes and types are derived."""
    cudnn = library()
    from golow.levels.direct.cudnn.bindings.frontend import _describe

    graph = cudnn.pygraph(
        io_data_type=cudnn.data_type.BFLOAT16,
        intermediate_data_type=cudnn.data_type.FLOAT,
        compute_data_type=cudnn.data_type.FLOAT,
    )
    operation = products.Convolution(
        direction="forward", image=(2, 8, 6, 6), output=(2, 16, 6, 6), kernel=(3, 3),
        stride=(1, 1), padding=(1, 1, 1, 1), dilation=(1, 1), groups=1, dtype="bfloat16",
        result="bfloat16", arithmetic="half", bias=True, residual=True,
        activation=Activation(name=name),
    )  # fmt: skip
    result = _describe(graph, operation)
    result.set_output(True).set_data_type(cudnn.data_type.BFLOAT16)
    graph.validate()
    assert list(result.get_dim()) == list(operation.output)
