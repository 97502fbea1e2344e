"""Recurrent networks at `cudnn` without a GPU: which of them stay whole, and the plan around the
library's calls: weights in one piece, turned time, views, gradients."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from ctypes import byref, c_float, c_int, c_uint32, c_void_p
from typing import TYPE_CHECKING, Any, cast

import msgspec
import pytest
import torch
from hypothesis import HealthCheck, given
from hypothesis import strategies as some
from torch import nn

from golow.levels.direct.cudnn.bindings.rnn_api import (
    CudnnError,
    Lies,
    call,
    data,
    library,
    network_descriptor,
    states,
    weight_places,
)
from golow.levels.direct.cudnn.engines.golow_recurrence import Shares, takes
from golow.levels.direct.cudnn.passes import passes
from golow.levels.direct.cudnn.problems.recurrent_network import RecurrentNetwork
from golow.levels.direct.cudnn.recurrences import FEWEST_STEPS, keep_faster_recurrences
from golow.levels.direct.cudnn.steps.built_plan import Built
from golow.lower.ir.clean_up import CLEAN_UP
from golow.lower.ir.pass_runner import apply
from golow.lower.operators.recurrence import Recurrence, RecurrenceBackward
from golow.lower.operators.recurrent_layers import RecurrentLayers
from golow.lower.operators.recurrent_stack import RecurrentStack, RecurrentStackBackward
from golow.lower.plan.plan import Step
from golow.records.errors import Unsupported
from golow.records.workload import Mode, Precision
from support.direct.cuda_on_cpu import Machine, follow
from support.direct.cudnn_plans import AskedEngines, assert_sound, built
from support.direct.libraries_on_cpu import KnownEngines, LibrariesMachine
from support.direct.networks_on_cpu import HostGpu, HostNetwork, NetworkMachine, documented
from support.examples import examples
from support.graphs.lowering import Case, count
from support.models.drawn_recurrences import Drawn, Recurrent, recurrent
from support.models.recurrent_networks import First, sides

if TYPE_CHECKING:
    from golow.levels.direct.cudnn.engines.engines import Engines

MODES: tuple[Mode, ...] = ("infer", "train")
several = examples(2, same=True, suppress_health_check=[HealthCheck.too_slow])


class NetworkEngines(AskedEngines):
    """Engines with networks that run on the host."""

    gpu = HostGpu()


def followed(case: Case) -> NetworkEngines:
    """The plan of the network, run node by node."""
    engines = NetworkEngines()
    follow_case(case, engines, NetworkMachine)
    return engines


def follow_case(
    case: Case,
    engines: AskedEngines,
    machine_of: Callable[[Built], Machine],
    limit: float = 1e-4,
) -> None:
    graph = apply(apply(case.graph, CLEAN_UP), passes(case.workload))
    values = {i.value.name: case.values[i.kind, i.target] for i in graph.inputs
              if (i.kind, i.target) in case.values}  # fmt: skip
    for item in graph.inputs:  # what the optimizer keeps
        values.setdefault(item.value.name, torch.zeros(item.value.shape))
    follow(graph, cast("Engines", engines), values, machine_of, limit)


@pytest.mark.parametrize("mode", MODES)
@several
@given(drawn=recurrent())
def test_the_plan_around_the_library_is_right(mode: Mode, drawn: Drawn) -> None:
    torch.manual_seed(0)
    case = Case(drawn.module(), torch.randn(drawn.shape), mode=mode)
    graph = case.after(*CLEAN_UP, keep_faster_recurrences)
    steps = drawn.shape[1 if drawn.settings["batch_first"] else 0]
    networks = followed(case).networks
    stacks = count(graph, RecurrentStack)
    assert stacks == count(graph, RecurrentStackBackward)
    assert count(graph, RecurrenceBackward) == (count(graph, Recurrence) if mode == "train" else 0)
    if steps < FEWEST_STEPS:
        assert not networks
    elif mode == "infer":
        assert len(networks) == count(graph, RecurrentLayers) == 1
    elif drawn.settings["ends"]:
        assert len(networks) == count(graph, Recurrence) == sides(drawn)
    else:  # all layers at once
        (network,) = networks
        assert network.layers * network.sides == sides(drawn)
        assert stacks == (sides(drawn) > 1)


class OwnEngines(KnownEngines):
    """Engines that compute recurrent layers by golow's own kernel, wherever there is one."""

    def own_recurrence(self, problem: RecurrentNetwork) -> Shares | None:
        return takes(problem, 12)


@several
@given(drawn=recurrent(), mode=some.sampled_from(MODES))
def test_the_plan_by_layers_is_right(drawn: Drawn, mode: Mode) -> None:
    """With products rounded to tf32, in the kernels alone."""
    torch.manual_seed(0)
    case = Case(drawn.module(), torch.randn(drawn.shape), mode=mode)
    engines = OwnEngines()
    follow_case(case, engines, LibrariesMachine, limit=1e-2)
    steps = drawn.shape[1 if drawn.settings["batch_first"] else 0]
    assert not engines.networks or steps < FEWEST_STEPS or drawn.settings.get("proj_size")


BY_LAYERS: dict[str, dict[str, Any]] = {
    "lstm": {"num_layers": 2, "states": True, "ends": True},
    "both directions": {"bidirectional": True, "num_layers": 2, "batch_first": True},
    "both directions and their states": {"bidirectional": True, "states": True, "ends": True},
    "gru without biases": {"kind": "gru", "bias": False, "states": True},
    "gru": {"kind": "gru", "num_layers": 2, "bidirectional": True, "states": True},
    "tanh": {"kind": "rnn", "nonlinearity": "tanh", "num_layers": 3},
}


@pytest.mark.slow
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("form", BY_LAYERS)
def test_layers_by_golows_own_kernels(form: str, mode: Mode) -> None:
    plain = {"kind": "lstm", "rows": 3, "states": False, "ends": False, "bidirectional": False,
             "num_layers": 1, "input_size": 6, "hidden_size": 22}  # fmt: skip
    torch.manual_seed(0)
    settings = plain | BY_LAYERS[form]
    x = torch.randn(3, 4, 6) if settings.get("batch_first") else torch.randn(4, 3, 6)
    engines, machines = OwnEngines(), []
    case = Case(Recurrent(**settings), x, mode=mode)
    follow_case(
        case,
        engines,
        lambda built: machines.append(LibrariesMachine(built)) or machines[0],
        limit=1e-2,
    )
    operations = [step.operation for step in machines[0].built.plan.steps]
    graph = case.after(*CLEAN_UP, keep_faster_recurrences)
    apart = count(graph, Recurrence)  # layers whose last states are read
    layers = apart or settings["num_layers"]
    assert operations.count("recurrent_layer") == layers
    assert operations.count("recurrent_layer_backward") == layers * (mode == "train")
    assert not engines.networks


FORMS: dict[str, dict[str, Any]] = {
    "three": {"num_layers": 3, "batch_first": True},
    "projected, without biases": {"proj_size": 2, "num_layers": 2, "bias": False, "states": True},
    "gru": {"kind": "gru", "num_layers": 2, "states": True},
    "both directions": {"bidirectional": True, "states": True, "proj_size": 3},
    "two in both directions": {"bidirectional": True, "num_layers": 2, "batch_first": True},
}


@pytest.mark.slow
@pytest.mark.parametrize("form", FORMS)
def test_layers_on_one_another_are_joined_in_training(form: str) -> None:
    plain = {"kind": "lstm", "rows": 2, "states": False, "ends": False, "bidirectional": False,
             "num_layers": 1}  # fmt: skip
    torch.manual_seed(0)
    module = Recurrent(**(plain | {"input_size": 5, "hidden_size": 4} | FORMS[form]))
    x = torch.randn(2, 4, 5) if FORMS[form].get("batch_first") else torch.randn(4, 2, 5)
    case = Case(module, x, mode="train")
    graph = case.after(*CLEAN_UP, keep_faster_recurrences)
    assert count(graph, RecurrentStack) == count(graph, RecurrentStackBackward) == 1
    assert count(graph, Recurrence) == count(graph, RecurrenceBackward) == 0
    (network,) = followed(case).networks
    assert network.layers == FORMS[form].get("num_layers", 1)
    assert network.sides == (2 if module.rnn.bidirectional else 1)


class Residual(nn.Module):
    """A layer whose input is added to its result, as in GNMT."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.LSTM(4, 4), nn.LSTM(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.first(x)[0]
        return (y + self.second(y)[0]).mean(1)


@pytest.mark.parametrize(
    "module", [Residual(), First(nn.LSTM(4, 4, 2, dropout=0.5)), First(nn.GRU(4, 4, 1))]
)
def test_what_others_read_is_not_joined(module: nn.Module) -> None:
    case = Case(module, torch.randn(3, 2, 4), mode="train")
    graph = case.after(*CLEAN_UP, keep_faster_recurrences)
    assert count(graph, RecurrentStack) == 0
    assert count(graph, Recurrence) == count(graph, RecurrenceBackward) > 0


@pytest.mark.parametrize("name", ["weights", "gradients"])
def test_a_weight_in_another_place_is_seen(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A planted error: where the plan says that both matrices are stored, they are exchanged."""
    made = HostNetwork.__init__

    def exchanged(self: HostNetwork, problem: RecurrentNetwork) -> None:
        made(self, problem)
        at = self.places[0]
        self.places[0]["input_weight"], self.places[0]["hidden_weight"] = (
            at["hidden_weight"], at["input_weight"],
        )  # fmt: skip

    case = Case(First(nn.LSTM(4, 4, bias=False)), torch.randn(5, 2, 4), mode="train")
    if name == "weights":
        monkeypatch.setattr(HostNetwork, "__init__", exchanged)
        monkeypatch.setattr(HostNetwork, "_offset", right_offset)
    else:
        monkeypatch.setattr(HostNetwork, "backward", nothing)
    with pytest.raises(AssertionError):
        followed(case)


def right_offset(self: HostNetwork, network: nn.Module, parameter: nn.Parameter) -> int:
    """Where the library reads a matrix, whatever the plan says."""
    _, look = documented(self.problem)
    number = 0 if parameter is network.weight_ih_l0 else self.problem.gates
    return int(look(0, number)[0].offset)


def nothing(*_: object) -> None:
    """Computes no gradient."""


def test_gates_that_are_apart_are_an_error() -> None:
    problem = one_layer()
    _, look = documented(problem)

    def apart(end: int, number: int) -> tuple[Lies, Lies]:
        matrix, bias = look(end, number)
        return matrix._replace(offset=matrix.offset + 4 * number), bias

    with pytest.raises(ValueError, match="input_weight has another layout"):
        weight_places(problem, apart)


def one_layer(**changed: Any) -> RecurrentNetwork:
    problem = RecurrentNetwork(
        kind="lstm", layers=1, sides=1, steps=3, rows=2, inputs=4, hidden=5, results=5,
        biased=True, batch_major=False, dtype="float32", arithmetic="ieee", trains=False,
    )  # fmt: skip
    return msgspec.structs.replace(problem, **changed)


@pytest.mark.parametrize(
    ("precision", "arithmetic"),
    [("default", "tf32"), ("ieee", "ieee"), ("tf32", "tf32"), ("bf16", "half"), ("fp16", "half")],
)
def test_its_arithmetic_is_that_of_convolutions(precision: Precision, arithmetic: str) -> None:
    """PyTorch permits TF32 to both by one setting, `torch.backends.cudnn.allow_tf32`."""
    made, engines = built(First(nn.GRU(4, 4, 2)), "train", precision, 5, 2, 4)
    assert_sound(made)
    assert [problem.arithmetic for problem in engines.networks] == [arithmetic]


def test_in_inference_the_weights_are_packed_when_loading() -> None:
    made, _ = built(First(nn.LSTM(4, 4, 2, batch_first=True)), "infer", "bf16", 2, 5, 4)
    assert_sound(made)
    (network,) = (step for step in made.plan.steps if step.operation == "recurrent_layers")
    weights = network.reads[0].buffer
    assert made.plan.buffers[weights].place == "constant"
    # Two matrices and two biases of two layers.
    writes = [step for step in made.plan.steps if step.once and weights in _written(step)]
    assert len(writes) == 8


def _written(step: Step) -> set[int]:
    return {operand.buffer for operand in step.writes}


def test_what_the_library_does_not_have_is_unsupported(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise CudnnError("cudnnSetRNNDescriptor_v8: CUDNN_STATUS_NOT_SUPPORTED")

    monkeypatch.setattr(AskedEngines, "recurrent", refuse)
    with pytest.raises(Unsupported, match=r"recurrent_layers: cudnnSet.*NOT_SUPPORTED"):
        built(First(nn.LSTM(4, 4)), "infer", "default", 5, 2, 4)


# ---------------------------------------------------------------- the library's descriptors


@pytest.fixture(scope="module")
def loaded() -> None:
    """Descriptors need the library and no GPU."""
    with suppress(ImportError):
        import cudnn  # noqa: F401  # the front end loads it
    try:
        library()
    except OSError as error:
        pytest.skip(str(error))


DESCRIBED = {
    "lstm": one_layer(),
    "projected": one_layer(layers=2, sides=2, results=3, dtype="bfloat16", arithmetic="half"),
    "gru": one_layer(kind="gru", biased=False, arithmetic="tf32"),
    "tanh": one_layer(kind="rnn_tanh", dtype="float16", arithmetic="half", trains=True),
}


@pytest.mark.parametrize("name", DESCRIBED)
def test_the_library_understands_a_network(name: str, loaded: None) -> None:
    """What was set is read back."""
    problem = DESCRIBED[name]
    made = network_descriptor(problem, "standard", None)
    numbers = [c_int() for _ in range(12)]
    dropout, flags = c_void_p(), c_uint32()
    call("cudnnGetRNNDescriptor_v8", made.handle, *map(byref, (*numbers, dropout, flags)))
    cells = {"rnn_relu": 0, "rnn_tanh": 1, "lstm": 2, "gru": 3}
    types, math = {"float32": 0, "float16": 2, "bfloat16": 9}, {"ieee": 3, "tf32": 0, "half": 1}
    assert [number.value for number in numbers] == [
        0, cells[problem.kind], 2 * problem.biased, problem.sides - 1, 0, types[problem.dtype], 0,
        math[problem.arithmetic], problem.inputs, problem.hidden, problem.results, problem.layers,
    ]  # fmt: skip
    assert flags.value == 1


@pytest.mark.parametrize("batch_major", [False, True])
def test_the_library_understands_rows_and_states(batch_major: bool, loaded: None) -> None:
    problem = one_layer(batch_major=batch_major, layers=2)
    rows, numbers = data(problem, 4), [c_int() for _ in range(5)]
    lengths, fill = (c_int * problem.rows)(), c_float()
    given = (problem.rows, lengths, byref(fill))
    call("cudnnGetRNNDataDescriptor", rows.handle, *map(byref, numbers), *given)
    assert [number.value for number in numbers] == [0, 2 * batch_major, 3, 2, 4]
    assert list(lengths) == [3, 3]
    state, dtype, axes = states(problem, 5), c_int(), c_int()
    shape, strides = (c_int * 3)(), (c_int * 3)()
    described = (byref(dtype), byref(axes), shape, strides)
    call("cudnnGetTensorNdDescriptor", state.handle, 3, *described)
    assert (list(shape), list(strides)) == ([2, 2, 5], [10, 5, 1])


def test_a_call_that_fails_says_why(loaded: None) -> None:
    with pytest.raises(CudnnError, match="cudnnSetTensorNdDescriptor: CUDNN_STATUS_BAD_PARAM"):
        states(one_layer(rows=-1), 5)
