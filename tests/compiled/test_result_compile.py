"""`Result.compile`, and the line to paste that a comparison ends with."""

from __future__ import annotations

import io
import re
from pathlib import Path
from typing import Any

import msgspec
import pytest
import torch
from rich.console import Console
from torch import Tensor, nn

import golow
from golow.api.comparisons import Result
from golow.compiled.callable_levels import is_callable, line_to_paste
from golow.compiled.compiled_module import CompiledModule
from golow.levels.direct.onednn.level import probe
from golow.levels.peers import exported_program
from golow.programs.comparison.repeat_request import same_request
from golow.records.comparison import Comparison, Run
from golow.records.errors import GolowError
from golow.records.workload import ModelSource, Workload
from golow.report.comparison.table import render
from golow.workload.bundle import write_bundle
from golow.workload.prepare import prepare
from golow.workload.request import Request
from support.direct.compiled_modules import X, close, network
from support.records.audits import RACE, ratio, run

pytestmark = pytest.mark.usefixtures("forked")
if not probe().available:
    pytest.skip("oneDNN is not installed", allow_module_level=True)

EAGER = run("eager", ratio(1.0, "same"))


def compared(*runs: Run, **workload: Any) -> Comparison:
    """A record of the network above with these levels."""
    source = ModelSource(kind="pickle", name="Sequential")
    own: dict[str, Any] = {"source": source, "threads": 1, "data": "the caller's example inputs"}
    one = msgspec.structs.replace(EAGER.workload, **{**own, **workload})
    levels = tuple(msgspec.structs.replace(each, workload=one) for each in (EAGER, *runs))
    return Comparison(format_version=1, id="c", created="", workload=one, race=RACE, runs=levels)


def result(*runs: Run) -> Result:
    return Result(compared(*runs), request=Request(network(), X, threads=1))


FASTEST = (
    run("torchscript", ratio(0.8, "faster")),
    run("onednn", ratio(0.2, "faster")),
    run("libtorch", ratio(0.1, "faster"), verdict="differs", reason="output 0 is off"),
    run("openvino", ratio(0.9, "unclear")),
)


def test_the_recommended_level_is_a_plan_if_it_is_a_direct_one() -> None:
    f = result(*FASTEST).compile(quiet=True)
    assert isinstance(f, CompiledModule) and f.target.threads == 1
    assert close(f(X), network()(X))


@pytest.mark.parametrize(
    ("runs", "wanted", "level"),
    [
        (FASTEST[:1], None, "torchscript"),
        (FASTEST[3:], None, "eager"),
        (FASTEST, "eager", "eager"),
        (FASTEST, "torchscript", "torchscript"),
        (FASTEST, "direct", ""),
        ((run("onednn:called", ratio(0.5, "faster")),), None, ""),
    ],
)
def test_another_level_that_matched_may_be_named(
    runs: tuple[Run, ...], wanted: str | None, level: str
) -> None:
    f = result(*runs).compile(level=wanted, quiet=True)
    assert getattr(f, "level", "") == level
    assert close(f(X), network()(X))


@pytest.mark.parametrize(
    ("runs", "level", "words"),
    [
        (FASTEST, "libtorch", "libtorch did not match: differs: output 0 is off"),
        (FASTEST, "compile", "compile was not compared\n.*one of eager, torchscript, onednn"),
        ((run("jax", ratio(0.5, "faster")),), None, "jax runs only in golow's worker, and is the"),
        ((run("jax", ratio(0.5, "faster")),), "jax", "jax runs only in golow's worker\n.* eager"),
        ((run("mine", ratio(0.5, "faster")),), "mine", "mine runs only in golow's worker"),
    ],
)
def test_a_level_that_cannot_be_had_names_those_that_can(
    runs: tuple[Run, ...], level: str | None, words: str
) -> None:
    with pytest.raises(GolowError, match=words) as raised:
        result(*runs).compile(level=level, quiet=True)
    assert "libtorch" not in raised.value.hint


def test_a_comparison_of_training_steps_is_refused() -> None:
    trained = Result(compared(mode="train"))
    with pytest.raises(GolowError, match="timed training steps") as raised:
        trained.compile(network(), X)
    assert "golow.compile_step(" in raised.value.hint
    assert 'without mode="train"' in raised.value.hint


def test_a_loaded_record_needs_the_model(tmp_path: Path) -> None:
    loaded = golow.load(result(*FASTEST).save(tmp_path))
    with pytest.raises(GolowError, match=r"does not contain the model\n.*compile\(model, x\)"):
        loaded.compile(quiet=True)
    with pytest.raises(GolowError, match="only one of model and inputs"):
        loaded.compile(network(), quiet=True)
    f = loaded.compile(network(1), X, quiet=True)
    assert isinstance(f, CompiledModule)
    assert close(f(X), network(1)(X))


NAMED: list[dict[str, Any]] = [
    {"model": "mlp", "batch": 2, "input_shape": (1, 8, 8), "classes": 3, "seed": 5},
    {"model": "lstm", "batch": 2, "sequence": 4, "classes": 30, "initialisation": "normal"},
    {"model": "ncf", "batch": 3},
]


@pytest.mark.slow
@pytest.mark.parametrize("given", NAMED, ids=lambda given: str(given["model"]))
def test_a_model_of_a_name_is_built_again_from_its_record(
    given: dict[str, Any], tmp_path: Path
) -> None:
    bundle, prepared = write_bundle(prepare(Request(**given, threads=1)), tmp_path / "first")
    asked = same_request(prepared.workload)
    assert asked is not None
    again, _ = write_bundle(prepare(asked), tmp_path / "again")
    assert again.workload.digest == bundle.workload.digest
    inputs = prepared.batches[0].inputs
    f = Result(_of(prepared.workload)).compile(quiet=True)
    assert close(f(*inputs), prepared.module(*inputs))


def _of(workload: Workload) -> Comparison:
    named = {"source": workload.source, "data": workload.data}
    return compared(**{**msgspec.structs.asdict(workload), **named})


def test_nobody_can_name_a_module_or_inputs_of_the_callers_own() -> None:
    found = compared().workload
    assert same_request(found) is None
    assert same_request(msgspec.structs.replace(found, data="")) is None


def test_modules_that_draw_take_what_golow_drew_only_in_its_worker() -> None:
    class Draws(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x + torch.randn_like(x)

    request = Request(Draws(), input_shape=(3, 4, 4), batch=2, threads=1)
    with pytest.raises(GolowError, match="uses random numbers, which golow supplied as inputs"):
        Result(compared(), request=request).compile(quiet=True)


@pytest.mark.slow
def test_what_the_comparison_built_is_used_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also for a live module, whose digest is that of its bytes."""
    found = golow.compare(
        network(), X, levels=["onednn", "openvino"], threads=1, time_limit=0, quiet=True
    )
    monkeypatch.setattr(exported_program, "_run", None)  # exports
    f = found.compile(level="openvino", quiet=True)
    assert close(f(X), network()(X))
    with pytest.raises(TypeError):  # of other weights there is none in the cache
        found.compile(network(1), X, level="openvino", quiet=True)


# ---------------------------------------------------------------- the line to paste


def line_below(comparison: Comparison, width: int = 60) -> str:
    """What a user copies from the terminal: it is one line, however narrow that is."""
    text = io.StringIO()
    render(comparison, Console(file=text, width=width))
    [found] = re.findall(r"^  ((?:f|step) = .*)$", text.getvalue(), re.MULTILINE)
    return str(found)


@pytest.mark.parametrize(
    "level",
    [
        "eager:channels_last",
        "torchscript",
        "onednn",
        *(
            pytest.param(name, marks=pytest.mark.slow)
            for name in ("compile:freezing", "onnxruntime", "openvino", "libtorch")
        ),
    ],
)
def test_the_line_below_the_table_runs_when_pasted(level: str) -> None:
    line = line_below(compared(run(level, ratio(0.5, "faster"))))
    names = {"golow": golow, "model": network(), "x": X}
    exec(line, names)  # noqa: S102  # golow's own line
    assert close(names["f"](X), network()(X))
    assert getattr(names["f"], "level", "onednn") == level


def test_it_has_the_precision_and_threads_that_were_measured() -> None:
    found = compared(device="cuda", precision="bf16", threads=4000).workload
    assert line_to_paste(found, "cudagraph") == (
        'f = golow.compile(model, x, level="cudagraph", precision="bf16", threads=4000)'
    )


def test_a_model_that_draws_has_a_line_only_where_the_level_draws() -> None:
    found = msgspec.structs.replace(compared(threads=4000).workload, draws=1)
    lines = {level: line_to_paste(found, level) for level in ("compile", "onednn", "openvino")}
    assert lines == {
        "compile": 'f = golow.compile(model, x, level="compile", threads=4000)',
        "onednn": "",
        "openvino": "",
    }


@pytest.mark.skipif(not probe().available, reason="oneDNN is not here")
def test_the_line_of_a_training_step_runs_when_pasted() -> None:
    line = line_below(compared(run("onednn", ratio(0.5, "faster")), mode="train"))
    model = network().train()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    y = torch.zeros_like(model(X))
    names = {
        "golow": golow, "model": model, "loss": nn.functional.mse_loss, "optimizer": optimizer,
        "x": X, "y": y,
    }  # fmt: skip
    exec(line, names)  # noqa: S102  # golow's own line
    first, second = (float(names["step"](X, y)) for _ in range(2))
    assert second < first


@pytest.mark.parametrize(
    "shown",
    [
        compared(),  # stays with eager
        compared(run("torchscript", ratio(0.9, "unclear"))),
        compared(run("jax", ratio(0.9, "faster"))),
        compared(run("compile:freezing+no_grad", ratio(0.9, "faster"))),
        compared(run("onednn", ratio(0.9, "faster"), verdict="differs")),
        compared(run("torchscript", ratio(0.9, "faster")), mode="train"),
    ],
)
def test_nothing_is_pasted_where_there_is_nothing_to_call(shown: Comparison) -> None:
    with pytest.raises(ValueError, match="not enough values"):
        line_below(shown)


def test_some_levels_are_called_on_some_devices() -> None:
    assert is_callable("onnxruntime", "cpu") and not is_callable("onnxruntime", "cuda")
    assert not is_callable("aotinductor:cudagraph", "cuda")
    assert not is_callable("eager:float64", "cpu")
    assert is_callable("compile:cudagraphs", "cuda")
