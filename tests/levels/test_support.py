"""`golow levels --support`: which level supports which operators, with nothing built or run."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn import functional

import golow
from golow.api import SupportResult
from golow.levels import ladder
from golow.levels.direct.cudnn import level as cudnn
from golow.levels.direct.cudnn import planning as cudnn_planning
from golow.levels.direct.onednn import level as onednn
from golow.levels.direct.onednn import planning as onednn_planning
from golow.levels.libtorch import level as libtorch
from golow.levels.libtorch.emit import emit_program
from golow.levels.traced.jax import level as jax
from golow.levels.traced.paddle import level as paddle
from golow.levels.traced.tensorflow import level as tensorflow
from golow.lower.ir.clean_up import CLEAN_UP
from golow.lower.ir.graph import Graph, GraphInput, GraphOutput, Node, Ref, Value
from golow.lower.ir.pass_runner import apply
from golow.records.errors import Unsupported
from golow.records.workload import Mode, Workload
from golow.workload.graph_capture import capture
from golow.workload.prepare import prepare
from golow.workload.request import Request
from support.examples import examples
from support.models.drawn_networks import networks

FROM_GRAPH = ["jax", "tensorflow", "paddle", "libtorch", "onednn", "cudnn"]


class Between(nn.Module):
    """A function of features between two linear layers."""

    def __init__(self, function: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.first, self.last, self.function = nn.Linear(6, 6), nn.Linear(6, 3), function

    def forward(self, x: Tensor) -> Tensor:
        return self.last(self.function(self.first(x)))


def complex_logarithm(x: Tensor) -> Tensor:
    z = torch.view_as_complex(x.unflatten(-1, (3, 2)))
    return torch.view_as_real((z * z + 1).log() * z).flatten(-2)


FUNCTIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "all run it": lambda x: torch.sigmoid(x) * x,
    "not implemented": torch.lgamma,
    "unfolds into what is not implemented": lambda x: torch.mvlgamma(x.abs() + 3, 2),
    "an unknown function of complex numbers": complex_logarithm,
    "another type": lambda x: (x.double() * 2).float() * 3,
    "two reasons for one call": lambda x: x.softmax(1, dtype=torch.float64).float(),
}


def drops(x: Tensor) -> Tensor:
    """Random numbers in a form that no level draws by itself, and that are no input of the step."""
    return functional.alpha_dropout(x, 0.5, training=True)


def asked(function: Callable[[Tensor], Tensor], mode: Mode = "infer") -> SupportResult:
    loss = "mse_of_outputs" if mode == "train" else None
    return golow.support(Between(function), torch.randn(5, 6), mode=mode, loss=loss)


def lacking(result: SupportResult) -> list[str]:
    return [level.level for level in result.support.levels if level.answer == "lacks"]


# ---------------------------------------------------------------- the answers


def test_the_answer_leads_back_to_the_call_and_its_layer() -> None:
    result = asked(FUNCTIONS["unfolds into what is not implemented"])
    row = result.rows[0]
    assert (row.operator, row.calls) == ("aten.mvlgamma.default", 1)
    assert row.refused == {"jax": 1, "tensorflow": 1, "paddle": 1, "onednn": 1, "cudnn": 1}
    [refusal] = row.reasons_of("onednn")
    assert refusal.reason == "aten.lgamma.default is not implemented"
    assert result.rows[1].refusals == ()
    assert lacking(result) == ["jax", "tensorflow", "paddle", "onednn", "cudnn"]
    assert result.lacks("onednn")
    assert not result.lacks("libtorch")
    with pytest.raises(KeyError):
        result.lacks("caffe")


def test_of_complex_numbers_only_what_cannot_run_is_refused() -> None:
    """Where a level has none, it says so of every call."""
    rows = asked(FUNCTIONS["an unknown function of complex numbers"]).rows
    for level in ("onednn", "cudnn"):
        [row] = [row for row in rows if level in row.refused]
        [refusal] = row.reasons_of(level)
        assert refusal.reason == "aten.log.default on complex numbers"
    said = {refusal.reason for row in rows for refusal in row.reasons_of("jax")}
    assert said == {"complex numbers are not supported"}


def test_some_calls_of_an_operator_may_run() -> None:
    multiplied = {row.operator: row for row in asked(FUNCTIONS["another type"]).rows}
    row = multiplied["aten.mul.Tensor"]
    assert (row.calls, row.refused["onednn"]) == (2, 1)
    assert row.reasons_of("onednn")[0].reason == "golow.binary on float64"


def test_a_call_that_is_refused_for_two_reasons_counts_once() -> None:
    [row] = [
        row
        for row in asked(FUNCTIONS["two reasons for one call"]).rows
        if row.operator == "aten.softmax.int"
    ]
    assert (row.calls, row.refused["onednn"]) == (1, 1)
    assert len(row.reasons_of("onednn")) == 2


def refused_at_libtorch(**options: Any) -> list[str]:
    """The reasons, in training."""
    found = golow.support(
        Between(drops), torch.randn(5, 6), mode="train", loss="mse_of_outputs", **options
    )
    assert found.lacks("libtorch")
    return [refusal.reason for row in found.rows for refusal in row.reasons_of("libtorch")]


@pytest.mark.slow
def test_libtorch_refuses_what_cannot_be_switched_off() -> None:
    assert any("random" in reason for reason in refused_at_libtorch())


def test_what_a_pass_adds_has_a_row_of_its_own() -> None:
    """SGD's update is in no call of the captured graph."""
    module = nn.Sequential(nn.Linear(6, 3)).double()
    result = golow.support(
        module, torch.randn(5, 6, dtype=torch.float64), mode="train", loss="mse_of_outputs"
    )
    [row] = [row for row in result.rows if row.operator == "(the step itself)"]
    assert row.refused == {"onednn": 2, "cudnn": 2}
    assert row.refusals[0].reason == "golow.sgd_update on float64"


@pytest.mark.parametrize("mode", ["infer", "train"])
def test_every_level_runs_a_model_of_the_zoo(mode: Mode) -> None:
    result = golow.support("mnist_cnn", mode=mode, batch=2)
    assert lacking(result) == []
    answers = {level.level: level.answer for level in result.support.levels}
    assert {name for name, answer in answers.items() if answer == "runs"} == set(FROM_GRAPH)
    assert {answers[name] for name in ("eager", "torchscript", "compile")} == {"module"}
    unknown = {name for name, answer in answers.items() if answer == "unknown"}
    exporting = {
        "onnxruntime", "openvino", "tensorrt", "executorch", "tvm", "iree", "aotinductor"
    }  # fmt: skip
    assert unknown == (exporting if mode == "infer" else set())
    assert all(row.refusals == () for row in result.rows)


def first_refusal(level: str, graph: Graph, workload: Workload) -> str:
    """What the level says when it is built: the reason, or nothing."""
    try:
        if level == "libtorch":
            emit_program(graph, workload.device)
        elif level == "jax":
            jax.source(apply(graph, jax.passes(workload)), workload)
        elif level == "tensorflow":
            tensorflow.source(apply(graph, tensorflow.passes(workload)), workload)
        elif level == "paddle":
            paddle.source(apply(graph, paddle.passes(workload)), workload)
        elif level == "onednn":
            onednn_planning.require_runnable(apply(graph, onednn.passes(workload)))
        else:
            cudnn_planning.require_runnable(apply(graph, cudnn.passes(workload)))
    except Unsupported as refused:
        return refused.reason
    return ""


def assert_as_when_built(module: nn.Module, inputs: Tensor, mode: Mode, loss: str | None) -> None:
    """Each level is said to lack exactly what it refuses when it is built."""
    found = golow.support(module, inputs, mode=mode, loss=loss)
    prepared = prepare(Request(module, inputs, mode=mode, loss=loss))
    graph = apply(capture(prepared).graph, CLEAN_UP)
    assert {row.operator: row.calls for row in found.rows} == {
        node.op: sum(other.op == node.op for other in graph.nodes) for node in graph.nodes
    }
    for level in FROM_GRAPH:
        reason = first_refusal(level, graph, prepared.workload)
        reasons = [r.reason for row in found.rows for r in row.reasons_of(level)]
        assert (reason in reasons) if reason else reasons == []
        assert found.lacks(level) == bool(reason)


@pytest.mark.parametrize("mode", ["infer", "train"])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_the_answer_is_that_of_a_build(name: str, mode: Mode) -> None:
    loss = "mse_of_outputs" if mode == "train" else None
    assert_as_when_built(Between(FUNCTIONS[name]), torch.randn(5, 6), mode, loss)


def test_an_answer_that_differs_from_a_build_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(onednn_planning, "refused_nodes", lambda graph: iter(()))
    with pytest.raises(AssertionError):
        assert_as_when_built(Between(torch.lgamma), torch.randn(5, 6), "infer", None)


@pytest.mark.slow
@examples(15)
@given(networks(), st.sampled_from(["infer", "train"]), st.booleans())
def test_the_answer_is_that_of_a_build_for_any_network(
    drawn: tuple[nn.Module, tuple[int, ...]], mode: Mode, lacks: bool
) -> None:
    network, shape = drawn
    module = nn.Sequential(network, LogGamma()) if lacks else network
    loss = "mse_of_outputs" if mode == "train" else None
    assert_as_when_built(module, torch.randn(2, *shape), mode, loss)


class LogGamma(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return torch.lgamma(torch.tanh(x) + 2)


@pytest.mark.slow
def test_casts_are_asked_too() -> None:
    """In half precision the emitted step has casts; what they are added to is still traced back."""
    half = {"mode": "train", "device": "cuda", "precision": "bf16", "levels": ["libtorch"]}
    assert not golow.support("mlp", **half).lacks("libtorch")
    half = {"device": "cuda", "precision": "bf16", "levels": ["libtorch"]}
    assert any("random" in reason for reason in refused_at_libtorch(**half))


def test_what_cannot_run_under_autocast_is_refused() -> None:
    values = [Value(name=name, shape=(2, 3), dtype="float32") for name in "xw"]
    product = Node(
        name="product",
        op="aten.mm.default",
        arguments=(Ref(name="x"), Ref(name="w")),
        outputs=(Value(name="y", shape=(2, 2), dtype="float32"),),
        module="layer1.0",
    )
    graph = Graph(
        name="made",
        mode="train",
        inputs=tuple(GraphInput(value=v, kind="parameter", target=v.name) for v in values),
        nodes=(product,),
        outputs=(GraphOutput(name="y", kind="output", target="0"),),
    )
    workload = prepare(Request("mlp", mode="train", batch=2)).workload
    assert list(libtorch.refusals(graph, workload)) == []
    half = msgspec.structs.replace(workload, device="cuda", precision="bf16")
    [refusal] = libtorch.refusals(graph, half)
    assert "aten.mm.default cannot run under autocast" in refusal.reason
    assert refusal.module == "layer1.0"


# ---------------------------------------------------------------- which levels


def test_no_gpu_and_no_library_is_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("golow.levels.direct.onednn.level.PACKAGE", "no-such-package")
    monkeypatch.setattr("golow.levels.gpu.has_gpu", lambda: False)
    result = golow.support("lenet5", levels=["vendor", "cudnn"], batch=2)
    here = {level.level: (level.answer, level.missing) for level in result.support.levels}
    assert here == {
        "onednn": ("runs", "no-such-package is not installed"),
        "cudnn": ("runs", "there is no NVIDIA GPU"),
    }


def test_a_level_is_asked_on_the_device_that_it_has() -> None:
    levels = ["cudnn:autotune", "compile:cudagraphs", "libtorch"]
    found = golow.support("mlp", levels=levels, batch=2).support
    assert [(level.level, level.device) for level in found.levels] == [
        ("cudnn:autotune", "cuda"), ("compile:cudagraphs", "cuda"), ("libtorch", "cpu"),
    ]  # fmt: skip


def test_a_device_leaves_the_levels_that_have_it() -> None:
    for device in ("cpu", "cuda"):
        levels = golow.support("mlp", device=device, batch=2).support.levels
        assert [level.level for level in levels] == [
            level.name
            for level in ladder.LADDER
            if device in level.devices and "infer" in level.modes
        ]
        assert {level.device for level in levels} == {device}


# ---------------------------------------------------------------- Python


def test_the_rows_are_a_data_frame() -> None:
    result = asked(torch.lgamma)
    table = result.to_pandas().set_index("operator")
    assert table.index[0] == "aten.lgamma.default"
    assert table["onednn"].iloc[0] == "aten.lgamma.default is not implemented"
    assert set(table["libtorch"]) == set(table["eager"]) == {""}
    assert table["openvino"].isna().all()
    assert table["calls"].sum() == sum(row.calls for row in result.rows)


def test_a_live_module_is_compared_in_python(capsys: pytest.CaptureFixture[str]) -> None:
    asked(torch.lgamma).table()
    text = " ".join(capsys.readouterr().out.split())
    assert 'Next: golow.compare(model, ..., levels=["eager", "torchscript"' in text


def test_no_module_is_changed_by_being_asked() -> None:
    module = Between(torch.lgamma).train()
    before = {name: tensor.clone() for name, tensor in module.state_dict().items()}
    golow.support(module, torch.randn(5, 6))
    assert all(torch.equal(tensor, before[name]) for name, tensor in module.state_dict().items())
    assert all(child.training for child in module.modules())
    assert all(type(weight) is nn.Parameter for weight in module.parameters())
