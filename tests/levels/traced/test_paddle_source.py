"""The level `paddle`: what it refuses, and the source that it writes."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import nn

from golow.levels.traced.paddle import level as paddle
from golow.lower.ir.clean_up import CLEAN_UP
from golow.lower.ir.pass_runner import apply
from golow.records.errors import Unsupported
from golow.workload.graph_capture import capture
from golow.workload.prepare import prepare
from golow.workload.request import Request
from support.workers.frameworks import write


def test_more_axes_than_paddle_has_are_refused_by_layer(tmp_path: Path) -> None:
    class Repeated(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x.repeat(1, 2, 2, 1, 2).sum((1, 2, 3))

    network = nn.Sequential(nn.Identity(), Repeated())
    bundle = write(Request(network, torch.rand(4, 2, 2, 2, 2)), tmp_path / "bundle")
    with pytest.raises(Unsupported, match="a tensor of 10 axes") as refused:
        paddle.prepare(bundle, "", tmp_path / "cache")
    assert refused.value.module == "1"


def test_images_keep_pytorchs_order() -> None:
    """Paddle's users have channels second: nothing is transposed."""
    prepared = prepare(Request("resnet18", mode="train", batch=2, resolution=32))
    graph = apply(capture(prepared).graph, CLEAN_UP)
    text = paddle.source(apply(graph, paddle.passes(prepared.workload)), prepared.workload)
    assert text.count("F.conv2d(") == 20
    assert text.count("F.batch_norm(") == 20
    assert text.count("paddle.transpose(") == 0
    assert "HELD = {}" in text
    assert "loss.backward()" in text


def test_the_source_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    from typer.testing import CliRunner

    from golow.cli import app

    shown = CliRunner().invoke(app, ["lower", "lenet5", "--show", "--level", "paddle"])
    assert shown.exit_code == 0
    assert "def forward(weights, batch):" in shown.output
    assert "F.conv2d(" in shown.output
