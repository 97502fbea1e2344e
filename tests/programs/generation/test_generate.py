"""`golow generate`: every source of a model at the levels of a CPU, from command to record."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from torch import nn

import golow
from golow.levels.direct.onednn import level as onednn
from golow.levels.generation.table import LEVELS
from golow.records.errors import GolowError
from golow.workload.generation.step_modules import step_of, tried_step, weight_bytes
from support import command
from support.models.text_models import LONGEST, OwnStep, varied_gpt2, varied_step
from support.places import SUPPORT, TESTS

pytestmark = pytest.mark.usefixtures("forked")

MODEL = f"{SUPPORT / 'models' / 'text_models.py'}:varied_gpt2"
COMPILED = "compile:static"
SHORT = {"prompt": 6, "tokens": 10, "threads": 1, "seconds": 0.1, "quiet": True}


def verdicts(result: golow.GenerationResult) -> dict[str, str]:
    return {
        f"{run.level} {case.workload.batch}": f"{run.verdict} {run.reason}".strip()
        for case in result.generation.cases
        for run in case.runs
    }


def test_the_command_writes_text_table_record_and_page(tmp_path: Path) -> None:
    ended = command.golow(
        *("generate", MODEL, "--text", "The ", "--tokens", "24", "--batch", "1,2"),
        *(
            "--levels",
            "eager",
            "--threads",
            "1",
            "--seconds",
            "0.1",
            "--out",
            str(tmp_path / "runs"),
        ),
        *("--report", str(tmp_path / "page.html"), "--json", str(tmp_path / "it.json")),
    )
    assert ended.status == 0, ended.error
    found = json.loads((tmp_path / "it.json").read_text())
    assert [case["workload"]["batch"] for case in found["cases"]] == [1, 2]
    for case in found["cases"]:
        assert [run["verdict"] for run in case["runs"]] == ["match", "match"]
        texts = {run["written"] for run in case["runs"]}
        assert len(texts) == 1
        assert texts.pop().startswith("The ")
    (folder,) = (tmp_path / "runs").iterdir()
    shown = command.golow("show", str(folder))
    assert shown.status == 0
    assert "eager:static" in shown.output
    assert (folder / "generation.csv").is_file()
    assert (tmp_path / "page.html").stat().st_size > 10_000
    assert max(map(len, ended.output.splitlines()[:20])) <= 80


def test_bf16_and_sampling_are_proved_too() -> None:
    result = golow.generate(
        varied_gpt2(), precision="bf16", temperature=0.9, top_k=50, top_p=0.9, batch=2,
        levels=["eager"], **SHORT,
    )  # fmt: skip
    assert verdicts(result) == {"eager 2": "match", "eager:static 2": "match"}
    run = result.level("eager")
    assert run.token is not None
    assert run.token.value > 0
    case = result.generation.cases[0]
    assert case.workload.weight_bytes == weight_bytes(varied_gpt2().bfloat16())


@pytest.mark.skipif(not onednn.probe().available, reason="oneDNN is not installed")
def test_plans_over_one_cache_are_a_level() -> None:
    result = golow.generate(varied_gpt2(), batch=2, levels=["onednn"], **SHORT)
    assert verdicts(result) == {"eager:static 2": "match", "onednn 2": "match"}


@pytest.mark.slow
@pytest.mark.skipif(not onednn.probe().available, reason="oneDNN is not installed")
def test_plans_with_weights_in_bf16_are_proved() -> None:
    few = SHORT | {"prompt": 3, "tokens": 4}  # plans of one token and of four are enough
    half = golow.generate(varied_gpt2(), precision="bf16", levels=["onednn"], **few)
    assert verdicts(half) == {"eager:static 1": "match", "onednn 1": "match"}


def test_a_users_step_module_runs_where_its_cache_may(tmp_path: Path) -> None:
    result = golow.generate(OwnStep(), batch=2, levels=["eager"], **SHORT)
    assert verdicts(result) == {
        "eager 2": "unavailable a step module has its own caches: see eager:static",
        "eager:static 2": "match",
    }


def test_a_step_module_of_golow_is_one_too() -> None:
    result = golow.generate(varied_step(), batch=2, levels=[], **SHORT)
    assert verdicts(result) == {"eager:static 2": "match"}


@pytest.mark.slow
def test_a_model_that_was_trained_writes_text_at_every_level(tmp_path: Path) -> None:
    trained = golow.train(
        MODEL, dataset="text", sequence=64, epochs=1, batch=64, levels=["eager"],
        optimizer=golow.Optimizer("adam", learning_rate=3e-3), threads=1, quiet=True,
        out=tmp_path / "runs",
    )  # fmt: skip
    assert trained.training.runs
    (folder,) = (tmp_path / "runs").iterdir()
    levels = {one.name for one in LEVELS if "cpu" in one.devices} - {COMPILED}
    result = golow.generate(
        str(folder), text="The ", levels=sorted(levels), **{**SHORT, "prompt": None}
    )
    runs = result.generation.cases[0].runs
    assert {run.level for run in runs} == levels
    assert {run.verdict for run in runs} - {"unavailable"} == {"match"}, verdicts(result)
    texts = {run.written for run in runs if run.verdict == "match" and run.departure is None}
    assert len(texts) == 1
    assert texts.pop().startswith("The ")


@pytest.mark.slow
@pytest.mark.whole_network
def test_a_compiled_step_is_a_level() -> None:
    """Inductor takes most of a minute for its two shapes."""
    result = golow.generate(varied_gpt2(), levels=[COMPILED], **SHORT)
    assert verdicts(result) == {"eager:static 1": "match", f"{COMPILED} 1": "match"}


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"batch": 0}, "at least one text"),
        ({"prompt": 0}, "is empty"),
        ({"tokens": 1}, "leaves no step to time"),
        ({"prompt": 90}, f"positions for {LONGEST} tokens"),
        ({"precision": "fp16"}, "is not available for texts"),
        ({"temperature": -1.0}, "not a temperature"),
        ({"seed": 2**64}, "is not a seed"),
        ({"seconds": float("nan")}, "a race of nan seconds"),
        ({"batch": [2, 2]}, "given twice"),
        ({"batch": 1.5}, "batch size 1.5 is not a whole number"),
        ({"tokens": "8"}, "number of tokens '8' is not"),
        ({"prompt": None, "text": "\udcff"}, "not UTF-8, from character 0 on"),
        ({"prompt": None, "text": 5}, "the text is int"),
        ({"temperature": 1.0, "top_p": 0.0}, "leave no token"),
        ({"top_k": 5}, "above 0"),
        ({"threads": 1000}, "do not fit"),
        ({"levels": ["libtorch"]}, "no level 'libtorch'"),
        ({"workers": {"mine": ["/no/such/program"]}}, "is not a program"),
        ({"text": "", "prompt": None}, "no token"),
        ({"text": "a", "prompt": 3}, "its own number"),
    ],
)
def test_what_cannot_be_generated_is_said_at_once(given: dict[str, object], said: str) -> None:
    with pytest.raises(GolowError, match=said):
        golow.generate(varied_gpt2(), **{**SHORT, **given})


@pytest.mark.parametrize(
    ("model", "said"),
    [
        ("lenet5", "cannot generate text with lenet5"),
        ("gpt3", "no model 'gpt3'"),
        (str(TESTS), "there is no training in"),
        (nn.Linear(3, 3), "is not a step module"),
    ],
)
def test_a_model_that_generates_nothing_is_refused(model: object, said: str) -> None:
    with pytest.raises(GolowError, match=said):
        golow.generate(model, **SHORT)


def test_a_module_that_keeps_nothing_is_refused() -> None:
    class Forgetful(OwnStep):
        def forward(self, tokens: torch.Tensor, position: torch.Tensor) -> torch.Tensor:
            logits: torch.Tensor = self.head(self.embedding(tokens[:, -1]))
            return logits

    with pytest.raises(GolowError, match="keeps nothing of a text"):
        tried_step(Forgetful(), "Forgetful", 2, 3, 8)


def test_without_a_reference_nothing_is_quoted() -> None:
    class Single(OwnStep):
        def forward(self, tokens: torch.Tensor, position: torch.Tensor) -> torch.Tensor:
            if self.table.dtype == torch.float64:
                raise ValueError("only float32")
            return super().forward(tokens, position)

    with pytest.raises(GolowError, match=r"reference failed.*only float32"):
        golow.generate(Single(), batch=2, levels=[], **SHORT)


def test_what_a_step_reads_and_writes_is_counted() -> None:
    model = varied_gpt2()
    step = step_of(model, 3, 20)
    vocabulary, written = tried_step(step, "it", 3, 5, 20)
    sizes = model.sizes
    assert vocabulary == sizes.vocabulary
    assert written == 3 * 2 * sizes.layers * sizes.width * 4
    looked_up = sizes.positions * sizes.width  # of the positions; that of the tokens is the head
    everything = sum(weight.numel() for weight in model.parameters())
    assert weight_bytes(model) == 4 * (everything - looked_up)


def test_zeros_that_a_step_writes_are_counted() -> None:
    step = OwnStep()
    step.embedding.weight.data[0] = 0  # as a padding token's
    _, written = tried_step(step, "it", 2, 3, 8)
    assert written == 2 * 8 * 4
    assert not step.table.any()
