"""The networks of `benchmarks/further_networks.py` at `onednn` against float64; and what the
program that races them says to a name that it does not know."""

from __future__ import annotations

import importlib
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import msgspec
import pytest
import torch

from golow.levels.direct.onednn.level import probe
from golow.programs.comparison import store
from golow.records.comparison import Comparison
from page_part import put_into
from support.direct.in_process import assert_right
from support.pages.pages import COMPARED, level
from support.places import DOCS, ROOT
from support.records import audits

BENCHMARKS = ROOT / "benchmarks"


def loaded() -> ModuleType:
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(BENCHMARKS))
        return importlib.import_module("further_networks")


FURTHER = loaded()


@pytest.mark.whole_network
@pytest.mark.skipif(not probe().available, reason="oneDNN is not installed")
@pytest.mark.parametrize("name", FURTHER.NETWORKS)
def test_a_network_is_right(name: str) -> None:
    from support.direct.onednn_in_process import compute, lower

    torch.manual_seed(0)
    network = FURTHER.NETWORKS[name]()
    x = torch.randn(3, *network.sample)
    lowered = lower(network, x, "infer")
    assert_right(lowered, compute(lowered))


@pytest.mark.slow
def test_an_unknown_network_is_named() -> None:
    program = BENCHMARKS / "race_further_networks.py"
    done = subprocess.run(
        [sys.executable, str(program), "--networks", "ConvMixer,Nothing"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 2
    assert "there is no Nothing; known: ConvMixer, Mixer" in done.stderr


# ---------------------------------------------------------------- the page


def raced(model: str, *others: str, mode: str = "infer") -> Comparison:
    """A record with onednn in 10 ms, eager in 40 and the others in 20."""
    runs = (level("eager", 0.04), *(level(name, 0.02) for name in others), level("onednn", 0.01))
    workload = msgspec.structs.replace(audits.workload(model=model), mode=mode)
    return msgspec.structs.replace(COMPARED, id=model, workload=workload, runs=runs)


def ended(*options: str) -> subprocess.CompletedProcess[str]:
    program = BENCHMARKS / "race_further_networks.py"
    command = [sys.executable, str(program), "--show", *options]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_records_are_tables_between_the_marks_of_their_page(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("before\n<!-- cpu: begin -->\nold\n<!-- cpu: end -->\nafter\n")
    found = (raced("b", "openvino"), raced("a"), raced("c", "compile", mode="train"))
    for one in found:
        store.save(one, tmp_path)
    done = ended("--out", str(tmp_path), "--page", str(page))
    assert done.returncode == 0, done.stderr
    text = page.read_text()
    assert done.stdout.strip() in text and "old" not in text
    rows = [line for line in text.splitlines() if line.startswith("| ")]
    assert (
        rows[0] == "| network | `onednn` | eager / ours | openvino / ours | memory over eager's |"
    )
    assert [row.split(" | ")[0] for row in rows[1:3]] == ["| a", "| b"]
    assert [row.split(" | ")[3] for row in rows[1:3]] == ["-", "2.00 (2.00-2.00)"]
    assert "Training, precision default, batch 8:" in text


def test_without_a_record_nothing_is_written(tmp_path: Path) -> None:
    done = ended("--out", str(tmp_path), "--page", str(tmp_path / "none.md"))
    assert done.returncode == 2
    assert "has no records of cpu" in done.stderr


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_the_page_has_its_marks(device: str) -> None:
    text = (DOCS / "results" / "further_networks.md").read_text()
    assert "the tables" in put_into(text, device, "the tables")
