"""`benchmarks/networks.py`: a tiny network in real processes, and the page of its records."""

from __future__ import annotations

import argparse
import importlib.util
import json
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

from golow.levels.direct.onednn import level as onednn
from golow.levels.level_selection import choices
from golow.models import ZOO
from golow.records.comparison import Ratio
from networks_tables import Row, tables
from page_part import put_into
from support.places import DOCS, ROOT

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
    page.write_text("<!-- networks: begin -->\n<!-- networks: end -->\n")
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
    assert shown.stdout.strip() in text
    assert "| lenet5 | 1x28 | " in text
    other = ended("--show", "--out", str(out), "--modes", "train")
    assert (other.returncode, other.stderr) == (2, f"{out} has no records of train\n")


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


# ---------------------------------------------------------------- the tables


def planted(name: str, gain: float | None, **changes: object) -> Row:
    """A race of which only the gain, the best other's time over ours, differs."""
    found = None if gain is None else Ratio(value=gain, low=gain, high=gain, word="faster")
    row = Row(name, "8x224", "cuda", "infer", "bf16", 1e-3, "compile", 2e-3, found, found, 0.4)
    return row._replace(**changes)


def test_a_row_where_another_level_is_faster_or_without_a_ratio_is_counted() -> None:
    rows = [
        planted("near", 1.0),
        planted("slow", 0.5),
        planted("good", 2.0),
        planted("none", None, missing="failed: planted"),
        planted("step", 1.5, mode="train"),
    ]
    text = "\n".join(tables(rows, "cudnn:autotune"))
    assert "| inference, bf16 | 4 | 1.00 | 1 | 1 |" in text
    assert "| training, bf16 | 1 | 1.50 | 0 | 0 |" in text
    shown = re.findall(r"^\| (\w+) \| 8x224 \| (.*) \|$", text, re.MULTILINE)
    assert [name for name, _ in shown] == ["good", "near", "slow", "none", "step"]
    assert shown[3][1].startswith("- | failed: planted | ")
    assert shown[0][1] == "1 ms | 2 ms | compile | 2.00 (2.00-2.00) | 0.40"


def test_every_line_of_a_table_has_the_columns_of_its_head() -> None:
    for device in ("cpu", "cuda"):
        rows = [planted("a", 1.5, device=device), planted("b", None, device=device)]
        lines = list(tables(rows, "ours"))
        head = next(n for n, line in enumerate(lines) if line.startswith("| network"))
        assert len({line.count("|") for line in lines[head:]}) == 1
        assert ("eager / ours" in lines[head]) == (device == "cpu")


def test_tables_go_between_the_marks_of_their_page() -> None:
    page = "# A\n\n<!-- networks: begin -->\nold\n<!-- networks: end -->\nfindings\n"
    written = put_into(page, "networks", "new")
    assert written.startswith("# A\n") and written.endswith("\nfindings\n")
    assert "old" not in written and "\nnew\n" in written
    assert put_into(written, "networks", "new") == written
    with pytest.raises(ValueError, match="the page has no <!-- roofs: begin -->"):
        put_into(page, "roofs", "new")


@pytest.mark.parametrize(
    ("name", "page"),
    [
        ("networks", "networks"),
        ("networks", "networks_training"),
        ("networks", "networks_cpu"),
        ("calls, cpu", "handed_over"),
        ("calls, cuda", "handed_over"),
        ("cpu", "cpu"),
        ("roofs", "roofs"),
        ("points", "h200"),
    ],
)
def test_the_pages_of_results_have_their_marks(name: str, page: str) -> None:
    text = (DOCS / "results" / f"{page}.md").read_text()
    assert "the tables" in put_into(text, name, "the tables")
