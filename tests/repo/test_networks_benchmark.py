"""`benchmarks/networks.py`: a tiny network in real processes, and the page of its records."""

from __future__ import annotations

import argparse
import importlib.util
import json
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

from golow.levels.direct.onednn import level as onednn
from golow.levels.level_selection import choices
from golow.models import ZOO
from golow.records.comparison import Ratio
from support.places import ROOT

SCRIPT = ROOT / "benchmarks" / "networks.py"
needs_onednn = pytest.mark.skipif(not onednn.probe().available, reason="oneDNN is not installed")


def ended(*options: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(SCRIPT), *options]
    return subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)


@pytest.fixture
def networks(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The script as a module of another name: the tests have networks of their own."""
    monkeypatch.syspath_prepend(str(SCRIPT.parent))
    found = importlib.util.spec_from_file_location("networks_benchmark", SCRIPT)
    assert found is not None and found.loader is not None
    module = importlib.util.module_from_spec(found)
    monkeypatch.setitem(sys.modules, found.name, module)
    found.loader.exec_module(module)
    return module


@pytest.mark.whole_network
@needs_onednn
def test_a_point_is_raced_once_and_shown(tmp_path: Path) -> None:
    out, page = tmp_path / "runs", tmp_path / "networks.md"
    options = "--models lenet5 --modes infer --batches 1 --levels eager:channels_last --threads 1"
    options += f" --point-seconds 1 --out {out}"
    nothing = ended(*options.split(), "--budget", "0")
    assert (nothing.returncode, nothing.stdout) == (0, ""), nothing.stderr
    first = ended(*options.split())
    assert first.returncode == 0, first.stderr
    [told] = [json.loads(line) for line in first.stdout.splitlines()]
    assert told["point"] == "lenet5-infer-default-1"
    assert told["best"] in ("eager", "eager:channels_last")
    again = ended(*options.split())
    assert (again.returncode, again.stdout) == (0, "")
    shown = ended("--show", "--out", str(out), "--page", str(page))
    assert shown.returncode == 0, shown.stderr
    text = page.read_text()
    assert text in shown.stdout
    assert "| lenet5-infer-default-1 | " in text
    assert ("over 1 points" in text) == ("too few rounds" not in text)


@pytest.mark.slow
def test_what_cannot_be_is_said(tmp_path: Path) -> None:
    wrong = ended("--models", "lenet6")
    assert wrong.returncode == 2
    assert "--models: there is no lenet6; known: mlp, lenet5" in wrong.stderr
    empty = ended("--show", "--out", str(tmp_path))
    assert (empty.returncode, empty.stdout) == (2, "")


# ---------------------------------------------------------------- points and rivals


def asked(**changes: object) -> argparse.Namespace:
    given = {
        "device": "cuda",
        "models": tuple(ZOO),
        "modes": ("infer", "train"),
        "precisions": None,
        "batches": None,
    }
    return argparse.Namespace(**(given | changes))


def test_the_points_are_those_of_the_bars(networks: ModuleType) -> None:
    found = list(networks.points(asked()))
    assert len({point.name for point in found}) == len(found)
    assert {point.model for point in found} == set(ZOO)
    bert = [
        p.name for p in found if (p.model, p.mode, p.precision) == ("bert_base", "infer", "bf16")
    ]
    assert bert == ["bert_base-infer-bf16-1x128", "bert_base-infer-bf16-8x512"]
    resnet = [
        p.batch for p in found if (p.model, p.mode, p.precision) == ("resnet50", "infer", "tf32")
    ]
    assert resnet == [1, 8, 64]
    of_cpu = list(networks.points(asked(device="cpu")))
    assert {point.precision for point in of_cpu} == {"default"}
    assert {point.batch for point in of_cpu} == {1, 8}


@pytest.mark.parametrize("device", ["cpu", "cuda"])
@pytest.mark.parametrize("mode", ["infer", "train"])
def test_every_rival_is_a_level_of_that_mode_and_device(
    device: str, mode: str, networks: ModuleType
) -> None:
    names = [*networks.RIVALS[device, mode], networks.OURS[device]]
    found = choices(names, {}, mode, device)  # type: ignore[arg-type]
    assert [choice.name for choice in found] == ["eager", *names]


# ---------------------------------------------------------------- the page


def test_every_miss_is_listed(networks: ModuleType) -> None:
    """Planted rows: at the bar, below it, without a ratio, and with too much memory."""

    def row(point: str, gain: float | None, memory: float = 0.4, missing: str = "") -> object:
        made = None if gain is None else Ratio(value=gain, low=gain, high=gain, word="faster")
        return networks.Row(
            point, "cuda", "infer", "bf16", 1.0, "compile", 1.0, made, made, memory, missing
        )

    rows = [
        row("good", 1.5),
        row("near", 0.98),
        row("slow", 0.97),
        row("large", 1.5, memory=0.6),
        row("none", None, missing="failed: planted"),
    ]
    found = list(networks.misses(rows))
    assert found[0] == "Below the bar: 1 of 5 points; without a ratio: 1."
    assert [line.partition(":")[0] for line in found[2:]] == ["* slow", "* none", "* large"]
    [mean, eager] = networks.means(rows)
    assert "over 4 points 1.209, bar 1.25." in mean
    assert "bar" not in eager
