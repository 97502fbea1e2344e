"""`golow levels --support` as a command: table, record, status, and what it says of mistakes."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

import golow
from golow import cli
from golow.levels.direct.onednn import level as onednn
from golow.programs.explain.explain_record import Support
from golow.report.comparison.support import SHOWN
from support.workers.forked_workers import fork_commands

FILE = """
import torch
from torch import nn

class Gate(nn.Module):
    def forward(self, x):
        return torch.lgamma(torch.tanh(x) + 2) + x

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 8, 3)
        self.gates = nn.Sequential(Gate(), Gate())
        self.fc = nn.Linear(8, 4)

    def forward(self, x):
        return self.fc(self.gates(torch.relu(self.conv(x))).mean((2, 3)))

class Flow(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(4, 4)

    def forward(self, x):
        return self.fc(x) if x.sum() > 0 else x
"""
FROM_GRAPH = ["jax", "tensorflow", "paddle", "libtorch", "onednn", "cudnn"]


def run(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *arguments: str
) -> tuple[int, str, str]:
    """Exit status, standard output and standard error of ``golow levels ARGUMENTS``."""
    monkeypatch.setattr(sys, "argv", ["golow", "levels", *arguments])
    with pytest.raises(SystemExit) as end:
        cli.main()
    output = capsys.readouterr()
    return int(end.value.code or 0), output.out, output.err


@pytest.fixture
def net(tmp_path: Path) -> str:
    (tmp_path / "mynet.py").write_text(FILE)
    return str(tmp_path / "mynet.py")


@pytest.mark.slow
def test_the_table_names_what_is_missing(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], net: str
) -> None:
    arguments = ["--support", f"{net}:Net", "--input", "3x8x8", "--batch", "2"]
    status, output, error = run(monkeypatch, capsys, *arguments)
    assert status == 1
    lines = output.splitlines()
    assert max(map(len, lines)) <= 100
    assert lines[1].split() == ["operator", "calls", *FROM_GRAPH]
    assert lines[2].split() == [
        "aten.lgamma.default",
        "2",
        *"no [1] no [1] no [1] yes no [1] no [1]".split(),
    ]
    text = " ".join(output.split())
    assert (
        "[1] jax, tensorflow, paddle, onednn, cudnn: aten.lgamma.default is not implemented "
        "(2 calls, the first at node gates.0, layer gates.0)"
    ) in text
    assert "eager, torchscript, compile and cudagraph run the module itself" in text
    command = text[text.index("golow compare") :].replace("\\ ", "")
    named = command.rpartition("--levels ")[2].split(",")
    assert "libtorch" in named
    assert not {"jax", "tensorflow", "paddle", "onednn", "cudnn", "cudagraph"} & set(named)
    assert "capturing the graph" in error


def test_levels_that_lack_nothing_are_status_0(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], net: str
) -> None:
    arguments = ["--support", f"{net}:Net", "--input", "3x8x8", "--levels", "libtorch,eager"]
    status, output, _ = run(monkeypatch, capsys, *arguments)
    assert status == 0
    assert "onednn" not in output
    assert "eager runs the module itself" in output


@pytest.mark.slow
def test_a_long_table_folds_what_all_run(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["--support", "mnist_cnn", "--mode", "train", "--batch", "2"]
    status, folded, _ = run(monkeypatch, capsys, *arguments)
    _, whole, _ = run(monkeypatch, capsys, *arguments, "--all")
    assert status == 0
    rows, all_rows = (sum("  yes" in line for line in t.splitlines()) for t in (folded, whole))
    assert rows == SHOWN
    assert f"and {all_rows - rows} more operators (" in folded
    assert "more operators" not in whole
    assert max(map(len, whole.splitlines())) <= 100


def test_a_model_that_cannot_be_captured_is_an_answer(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], net: str
) -> None:
    status, output, error = run(monkeypatch, capsys, "--support", f"{net}:Flow", "--input", "4")
    assert status == 1
    text = " ".join(output.split())
    assert "libtorch, onednn and cudnn need a graph: torch could not capture Flow" in text
    [named] = re.findall(r"--levels (\S+)", text)
    assert named == "eager,torchscript,compile"  # an export fails as the capture did
    assert "Traceback" not in error


def test_the_record_is_json(
    monkeypatch: pytest.MonkeyPatch,
    capfdbinary: pytest.CaptureFixture[bytes],
    tmp_path: Path,
    net: str,
) -> None:
    arguments = ["golow", "levels", "--support", f"{net}:Net", "--input", "3x8x8", "--json"]
    found = []
    for place in ("-", str(tmp_path / "support.json")):
        monkeypatch.setattr(sys, "argv", [*arguments, place])
        with pytest.raises(SystemExit):
            cli.main()
        output = capfdbinary.readouterr()
        told = output.out if place == "-" else Path(place).read_bytes()
        assert (b"operator" in output.err) == (place == "-")
        json.loads(told)
        found.append(msgspec.json.decode(told, type=Support))
    assert found[0] == found[1]
    assert found[0].operators[0].operator == "aten.lgamma.default"
    refused = dict.fromkeys(("jax", "tensorflow", "paddle", "onednn", "cudnn"), 2)
    assert found[0].operators[0].refused == refused
    assert found[0].level("cudnn").answer == "lacks"


MISTAKES = [
    (["--batch", "3"], "--support MODEL"),
    (["--all"], "--support MODEL"),
    (["--support", "resnet51"], "resnet50"),
    (["--support", "lenet5", "--levels", "onedn"], "onednn"),
    (["--support", "lenet5", "--levels", ""], "names nothing"),
    (["--support", "lenet5", "--levels", "onednn+nothing"], "no choice"),
    (["--support", "lenet5", "--levels", "cudnn+nothing"], "no choice"),
    (["--support", "lenet5", "--levels", "cudnn", "--device", "cpu"], "--device cuda"),
    (["--support", "lenet5", "--levels", "openvino", "--mode", "train"], "infer only"),
    (["--support", "lenet5", "--precision", "bf16"], "--device cuda"),
    (["--support", "lenet5", "--resolution", "3"], "at least 12"),
    (["--support", "lenet5", "--input", "3xlarge"], "3x224x224"),
    (["--support", "lenet5", "--mode", "train", "--loss", "hope"], "cross_entropy"),
    (["--support", "nowhere.py:Net", "--input", "3x8x8"], "no file"),
    (["--support", "lenet5", "--json", "/dev/null/support.json"], "/dev/null"),
]


@pytest.mark.parametrize(("arguments", "said"), MISTAKES, ids=[" ".join(m[0]) for m in MISTAKES])
def test_a_mistake_is_explained(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
    said: str,
) -> None:
    status, output, error = run(monkeypatch, capsys, *arguments)
    assert status == 2
    assert said in error
    assert "Traceback" not in error
    assert output == ""


@pytest.mark.slow
@pytest.mark.skipif(not onednn.probe().available, reason="oneDNN is not installed")
@pytest.mark.usefixtures("forked")
def test_a_comparison_says_the_same(
    net: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In real processes: what is said to lack an operator is unavailable for that reason."""
    options = ["--input", "3x8x8", "--batch", "2", "--threads", "1", "--time-limit", "0.1"]
    levels = ["--levels", "onednn", "--json", "-", "--out", str(tmp_path / "runs")]
    command = [sys.executable, "-m", "golow", "compare", f"{net}:Net", *options, *levels]
    fork_commands(monkeypatch)
    done = subprocess.run(command, capture_output=True, check=False, timeout=300)
    [_, refused] = json.loads(done.stdout)["runs"]
    assert refused["check"]["verdict"] == "unavailable"
    [row] = [
        row
        for row in golow.support(f"{net}:Net", input_shape=(3, 8, 8)).rows
        if row.reasons_of("onednn")
    ]
    [refusal] = row.reasons_of("onednn")
    assert refusal.reason in refused["check"]["reason"]
    assert refusal.module in refused["check"]["reason"]
