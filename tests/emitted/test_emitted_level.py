"""The level `onednn:emitted` is checked and raced as any other."""

from __future__ import annotations

import msgspec
import pytest
import torch
from torch import nn

import golow
from golow.levels.called.project_building import missing
from golow.levels.ladder import choose
from golow.records.errors import GolowError
from golow.records.workload import ModelSource
from golow.report.page.getting import getting

pytestmark = [
    pytest.mark.usefixtures("forked"),
    pytest.mark.slow,
    pytest.mark.skipif(
        missing("onednn") is not None, reason="what builds a project is not installed"
    ),
]


def small() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.Flatten(), nn.Linear(512, 5)
    ).eval()


def test_the_level_is_checked_and_raced() -> None:
    x = torch.randn(4, 3, 8, 8)
    result = golow.compare(
        small(), x, levels=["eager", "direct:emitted"], time_limit=0.1, threads=1, quiet=True,
    )  # fmt: skip
    [_, run] = result.comparison.runs
    assert run.level == "onednn:emitted"
    assert run.check.verdict == "match", run.check
    assert run.time is not None
    # What is handed over in Python is the same plan.
    assert torch.allclose(result.compile(level="onednn:emitted")(x), small()(x), atol=1e-5)
    live = result.comparison.workload
    assert list(getting(live, "onednn:emitted")) == []  # no command names a live module
    source = ModelSource(kind="zoo", name="lenet5")
    named = msgspec.structs.replace(live, source=source, data="", weights="")
    shown = " ".join(map(str, getting(named, "onednn:emitted")))
    assert "golow emit lenet5" in shown and "--level onednn --out" in shown


def test_it_is_for_inference_on_a_cpu() -> None:
    assert choose("direct:emitted", "infer").name == "onednn:emitted"
    with pytest.raises(GolowError, match="is for infer only, not for train"):
        choose("direct:emitted", "train")
