"""Models of `transformers` at the CPU levels, with random weights. They need an extra that the test
command does not install: `pip install -e '.[test,transformers]'`."""

from __future__ import annotations

import pytest
import torch

import golow
from golow.records.workload import Mode
from support.models.transformers_models import MODELS

transformers = pytest.importorskip("transformers")

LEVELS = ["eager", "torchscript", "libtorch", "onednn"]
TRAINED = ["vit", "convnext", "resnet", "gpt2", "t5", "mixtral"]
OWN_OPERATORS = ("mixtral",)
"""Models that call operators of transformers, which a C++ program does not have."""


def levels_of(name: str) -> list[str]:
    return [level for level in LEVELS if name not in OWN_OPERATORS or level != "libtorch"]


def compared(name: str, mode: Mode, levels: list[str]) -> golow.Result:
    torch.manual_seed(0)
    model, inputs = MODELS[name](transformers)
    targets = None
    if mode == "train":
        with torch.no_grad():
            targets = torch.randn_like(model.eval()(*inputs))
    return golow.compare(
        model, inputs, mode=mode, levels=levels, targets=targets, threads=1,
        time_limit=0.5,
        loss="mse_loss" if mode == "train" else None,
    )  # fmt: skip


def verdicts(result: golow.Result) -> dict[str, str]:
    runs = result.comparison.runs
    return {run.level: f"{run.check.verdict} {run.check.reason}".strip() for run in runs}


@pytest.mark.parametrize("name", MODELS)
def test_inference_matches_at_every_level(name: str) -> None:
    found = verdicts(compared(name, "infer", levels_of(name)))
    assert found == dict.fromkeys(levels_of(name), "match")


@pytest.mark.parametrize("name", TRAINED)
def test_training_matches_at_every_level(name: str) -> None:
    found = verdicts(compared(name, "train", levels_of(name)))
    assert found == dict.fromkeys(levels_of(name), "match")
