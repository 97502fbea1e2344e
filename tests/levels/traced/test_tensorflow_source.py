"""The level `tensorflow`: what it refuses without XLA, and the source that it writes."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import nn

from golow.levels.traced.tensorflow import level as tensorflow
from golow.lower.ir.clean_up import CLEAN_UP
from golow.lower.ir.pass_runner import apply
from golow.records.errors import Unsupported
from golow.records.workload import Mode
from golow.workload.graph_capture import capture
from golow.workload.prepare import prepare
from golow.workload.request import Request
from support.workers.frameworks import write


@pytest.mark.parametrize(
    ("layer", "mode", "what"),
    [
        (nn.Conv2d(4, 6, 3, dilation=2), "train", "the gradient of a convolution with gaps"),
        (nn.Conv2d(4, 6, 3, groups=2), "train", "the gradient of a convolution in groups"),
        (
            nn.Conv2d(4, 4, 3, groups=4, stride=(1, 2)),
            "infer",
            "a depthwise convolution with two strides",
        ),
        (nn.ConvTranspose2d(4, 4, 3, dilation=2), "infer", "a transposed convolution with gaps"),
    ],
)
def test_what_only_xla_has_is_refused_without_it(
    layer: nn.Module, mode: Mode, what: str, tmp_path: Path
) -> None:
    bundle = write(Request(layer, torch.rand(2, 4, 9, 9), mode=mode), tmp_path / "bundle")
    tensorflow.prepare(bundle, "", tmp_path / "cache")
    with pytest.raises(Unsupported, match=f"TensorFlow has no kernel for {what}"):
        tensorflow.prepare(bundle, "graph", tmp_path / "cache")


def test_images_keep_their_channels_last_between_layers() -> None:
    """No transposition from the first convolution to the product at the end."""
    prepared = prepare(Request("resnet18", mode="train", batch=2, resolution=32))
    graph = apply(capture(prepared).graph, CLEAN_UP)
    text = tensorflow.source(apply(graph, tensorflow.passes(prepared.workload)), prepared.workload)
    assert text.count("tf.nn.conv2d(") == 20
    assert text.count("FusedBatchNormV3(") == 20
    assert text.count("tf.transpose(") <= 1
    assert "tf.GradientTape()" in text


def test_the_source_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    from typer.testing import CliRunner

    from golow.cli import app

    shown = CliRunner().invoke(app, ["lower", "lenet5", "--show", "--level", "tensorflow"])
    assert shown.exit_code == 0
    assert "def forward(weights, batch):" in shown.output
    assert "tf.nn.conv2d(" in shown.output
