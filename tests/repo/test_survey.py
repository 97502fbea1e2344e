"""`benchmarks/survey.py`: the least that a graph needs, and what a run that was stopped keeps."""

from __future__ import annotations

import argparse
import json
import os
import time
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

import survey
import survey_networks
from golow.lower.ir.clean_up import CLEAN_UP
from golow.lower.ir.pass_runner import apply
from golow.records.workload import Mode
from golow.workload.graph_capture import capture
from golow.workload.prepare import prepare
from golow.workload.request import Request
from survey_least import Rates, least_seconds
from survey_page import tables

RATES = Rates(bytes=1.0, operations=1e30, launch=0.0, item=4)
"""Seconds are then bytes."""


class Layers(nn.Module):
    """Two products with functions of elements, views and a join between them."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(8, 8, bias=False), nn.Linear(16, 4, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        y = self.first(x).tanh().transpose(0, 1).contiguous().transpose(0, 1)
        return self.last(torch.cat([y, (y * 2).sigmoid()], 1))


def least(mode: Mode, rates: Rates = RATES) -> float:
    loss = "mse_of_outputs" if mode == "train" else None
    prepared = prepare(Request(Layers(), torch.randn(32, 8), mode=mode, loss=loss))
    graph = apply(capture(prepared).graph, CLEAN_UP)
    return least_seconds(graph, rates, mode == "train")


def test_functions_of_elements_and_layouts_cost_nothing() -> None:
    first = 32 * 8 + 8 * 8 + 2 * 32 * 8  # reads x and the weight, writes both parts
    last = 32 * 16 + 16 * 4 + 32 * 4
    assert least("infer") == 4 * (first + last)


def test_each_kernel_needs_a_launch() -> None:
    launches = least("infer", Rates(1e30, 1e30, 1.0, 4))
    assert launches == pytest.approx(2)


def test_training_also_writes_the_weights() -> None:
    assert least("train") > 2 * least("infer")


@pytest.mark.slow
def test_a_network_is_surveyed_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "records.jsonl"
    command = ["survey.py", "--networks", "further:Bottleneck", "--records", str(file)]
    command += ["--modes", "infer", "--plans", "bf16,float32"]
    monkeypatch.setattr("sys.argv", command)
    assert survey.main() == 0
    [record] = survey.records(file)
    results = {result["plan"]: result for result in record["results"]}
    assert results["bf16"]["predicted"] >= results["bf16"]["most"][0][1] > 0
    assert results["bf16"]["steps"] > 0
    with file.open("a") as damaged:
        damaged.write('{"network": "cut sh')
    assert survey.main() == 0
    assert len(survey.records(file)) == 1
    monkeypatch.setattr("sys.argv", [*command, "--networks", "further:None"])
    assert survey.main() == 0
    assert [item["network"] for item in survey.records(file)] == [
        "further:Bottleneck",
        "further:None",
    ]


def asked(seconds: float) -> argparse.Namespace:
    return argparse.Namespace(
        jobs=1, seconds=seconds, budget=60.0, modes=["infer"], plans=["bf16"], gpu="h200"
    )


def test_a_network_that_takes_too_long_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(survey, "answer", lambda *given: time.sleep(600))
    [record] = survey.in_processes(["further:Bottleneck"], asked(seconds=0.0))
    assert record["failed"] == "did not finish within 0 s"


def test_a_process_that_dies_is_a_record(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(survey, "answer", lambda *given: os._exit(3))
    [record] = survey.in_processes(["further:Bottleneck"], asked(seconds=60.0))
    assert record["failed"] == "its process ended with exit status 3"


def test_a_record_without_a_plan_that_is_asked_for_is_not_complete() -> None:
    both = argparse.Namespace(modes=["infer", "train"], plans=["bf16"])
    results = [{"mode": "infer", "plan": "bf16"}]
    assert not survey.covers({"results": results}, both)
    assert survey.covers({"results": [*results, {"mode": "train", "missing": "why"}]}, both)


def test_a_narrow_configuration_keeps_a_layer_of_each_kind() -> None:
    kinds = ["linear", "linear", "full", "linear", "full", "sliding"]
    given = {
        "layer_types": kinds, "num_hidden_layers": 6, "sizes": [1, 2, 3], "out_indices": [5],
        "vision": {"num_layers": 12, "hidden_size": 1024, "dropout": True},
    }  # fmt: skip
    assert survey_networks._small(given) == {
        "layer_types": ["linear", "full", "sliding"], "num_hidden_layers": 3, "sizes": [1, 2, 3],
        "vision": {"num_layers": 2, "hidden_size": 256, "dropout": True},
    }  # fmt: skip


def test_the_page_marks_what_loses_most_and_says_what_is_missing() -> None:
    def result(plan: str, predicted: float) -> dict[str, object]:
        return {
            "mode": "infer", "plan": plan, "steps": 3, "layout": 1024, "predicted": predicted,
            "least": 1e-4, "most": [["linear", predicted / 2]],
        }  # fmt: skip

    found = [
        {"network": "timm:near", "results": [result("bf16", 1.1e-4)]},
        {"network": "timm:far", "results": [result("bf16", 2e-4)]},
        {"network": "hf:odd", "results": [{"mode": "infer", "missing": "it branches"}]},
        {"network": "hf:slow", "failed": "did not finish within 300 s"},
    ]
    text = tables(json.loads(json.dumps(found)), "H200")
    assert text.index("timm:far") < text.index("timm:near")
    assert "| **2.00** | linear 50% |" in text and "| 1.10 | linear 50% |" in text
    assert "it branches" in text and "did not finish within 300 s" in text
