"""What a worker of `onednn` keeps: the layouts that it chose, and of its plans nothing."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from golow.levels.direct.onednn import level as onednn
from golow.levels.direct.onednn.bindings.library import Engine, channel_block
from golow.levels.direct.onednn.planning import build_plan
from golow.levels.direct.onednn.run import tuning
from golow.levels.direct.onednn.run.program import OneDnn
from golow.levels.direct.onednn.run.tuning import LAYOUTS_FILE
from golow.levels.direct.onednn.steps.built_plan import Switches
from golow.levels.lowering import BUILT, GRAPH
from golow.lower.ir.clean_up import CLEAN_UP
from golow.lower.ir.graph import decode_graph
from golow.lower.ir.pass_runner import apply
from golow.records.workload import Mode
from golow.workload.bundle import Bundle
from golow.workload.graph_capture import capture
from golow.workload.prepare import prepare
from golow.workload.request import Request
from support.direct.onednn_subjects import (
    choose_layouts,
    folder_of,
    make_subject,
    subject_of,
    written,
)
from support.plants.damages import DAMAGES, damage_note

pytestmark = pytest.mark.skipif(
    not onednn.probe().available, reason="the package of oneDNN is not installed"
)

# ---------------------------------------------------------------- the layouts


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Measured in a moment, which counts as calm whatever else runs."""
    monkeypatch.setattr(tuning, "SECONDS", 0.001)
    monkeypatch.setattr(tuning, "CLEAN_SHARE", 100.0)


@pytest.fixture
def place(tmp_path: Path) -> tuple[Path, Path]:
    """A cache of its own with the lowered graph, and the bundle."""
    subject = make_subject("infer", tmp_path)
    return folder_of(subject), subject.bundle.folder


@pytest.mark.usefixtures("quick")
def test_layouts_are_measured_once(place: tuple[Path, Path]) -> None:
    folder, bundle = place
    first = OneDnn(folder).load(bundle)
    kept = (folder / LAYOUTS_FILE).read_bytes()
    chosen = tuning.read(folder / LAYOUTS_FILE, [])
    assert chosen is not None
    graph = decode_graph((folder / GRAPH).read_bytes())
    assert list(chosen.positions) == tuning.convolutions(graph) + tuning.linear_layers(graph)
    assert set(chosen.positions.values()) <= set(tuning.LAYOUTS)
    assert {"any", "channels_last", "blocked"} <= set(chosen.milliseconds)
    assert first.notes == ()
    OneDnn(folder).load(bundle)
    assert (folder / LAYOUTS_FILE).read_bytes() == kept
    assert sorted(file.name for file in folder.iterdir()) == [GRAPH, LAYOUTS_FILE]


BLOCKED = f"aBcd{channel_block().size}b"


@pytest.mark.parametrize(("name", "text"), [("channels_last", "acdb"), ("blocked", BLOCKED)])
def test_kept_layouts_are_those_that_run(name: str, text: str, place: tuple[Path, Path]) -> None:
    folder, bundle = place
    choose_layouts(folder, name)
    program = OneDnn(folder)
    program.load(bundle)
    steps = [step for step in program.built.plan.steps if step.operation == "convolution"]
    assert [step.writes[0].layout for step in steps] == [text] * 2


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize("damage", sorted(DAMAGES))
def test_damaged_layouts_are_measured_again(damage: str, place: tuple[Path, Path]) -> None:
    """Also where the damage is another layout, which would run."""
    folder, bundle = place
    choose_layouts(folder, "blocked", "channels_last")
    DAMAGES[damage](folder / LAYOUTS_FILE)
    notes = OneDnn(folder).load(bundle).notes
    assert damage_note(folder, LAYOUTS_FILE) in notes
    assert tuning.read(folder / LAYOUTS_FILE, []) is not None
    assert OneDnn(folder).load(bundle).notes == notes[1:]


def test_layouts_of_a_busy_moment_serve_one_comparison(
    place: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tuning, "SECONDS", 0.001)
    monkeypatch.setattr(tuning, "CLEAN_SHARE", -1.0)
    monkeypatch.setattr(tuning, "LIMIT", 0.0)
    folder, bundle = place
    building = OneDnn(folder).load(bundle)
    kept = (folder / LAYOUTS_FILE).read_bytes()
    warm = OneDnn(folder).load(bundle)
    assert (folder / LAYOUTS_FILE).read_bytes() == kept
    for report in (building, warm):
        assert report.notes == ("layouts were chosen while other processes used the cores",)
    (folder / BUILT).write_text("{}")  # as the parent writes it
    assert folder_of(subject_of(Bundle(bundle), folder.parents[1])) == folder
    assert [file.name for file in folder.iterdir()] == [GRAPH]


@pytest.mark.parametrize("shares", [(0.2, 0.5), (0.5, 0.2)])
def test_of_two_busy_moments_the_cleaner_one_counts(
    shares: tuple[float, float], monkeypatch: pytest.MonkeyPatch
) -> None:
    """There is no third one: a machine may be busy for hours."""
    tries = list(shares)

    @contextmanager
    def waiting() -> Iterator[list[float]]:
        yield [tries.pop(0)]

    def in_turn(*_: object) -> dict[str, list[np.ndarray]]:
        return {"any": [np.array([1.0 if tries else 2.0])]}

    monkeypatch.setattr(tuning, "_waiting", waiting)
    monkeypatch.setattr(tuning, "_in_turn", in_turn)
    seconds, clean = tuning._measure(lambda _: None, {"any": {}}, 1)  # type: ignore[arg-type,return-value]
    assert (seconds["any"].tolist(), clean) == ([1.0 + shares.index(min(shares))], False)


# ---------------------------------------------------------------- memory

PLANS = """
import gc, sys
from pathlib import Path
from golow.levels.direct.onednn.run.program import OneDnn
from golow.levels.direct.onednn.run import tuning
program = OneDnn(Path({cache!r}))
program.load(Path({bundle!r}))
layouts = tuning.read(Path({cache!r}) / "layouts.json", [])
for count in range(1, 1401):
    program._load_plan(layouts).run()
    if count % 100 == 0:  # what waits for the collector is not left behind
        gc.collect()
    if count in (1000, 1400):  # until then the library fills a cache of its own
        fields = Path("/proc/self/status").read_text().split("VmRSS:")[1].split()
        print(fields[0], flush=True)
"""


class Little(nn.Module):
    """What has workspaces, scratchpads, constants and steps of NumPy, and builds in a moment."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.bn = nn.Conv2d(3, 16, 3, bias=False), nn.BatchNorm2d(16)
        self.drop, self.fc = nn.Dropout(0.5), nn.Linear(16 * 4, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = nn.functional.max_pool2d(torch.relu(self.bn(self.conv(x))), 2)
        x = nn.functional.adaptive_avg_pool2d(x, 2)
        return self.fc(self.drop(x.flatten(1)))


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["infer", pytest.param("train", marks=pytest.mark.whole_network)])
def test_a_thousand_plans_leave_nothing_behind(mode: Mode, tmp_path: Path) -> None:
    bundle = written(
        prepare(Request(Little(), torch.randn(2, 3, 9, 9), mode=mode)), tmp_path / "bundle"
    )
    subject = subject_of(bundle, tmp_path / "cache")
    choose_layouts(folder_of(subject), "blocked")
    code = PLANS.format(cache=subject.command[-1], bundle=str(bundle.folder))
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, **subject.environment},
        stdout=subprocess.PIPE,
        check=True,
        text=True,
    )
    early, late = map(int, done.stdout.split())
    assert abs(late - early) < 1024  # KiB; a page a plan would be 1600


# ---------------------------------------------------------------- the library's slow paths


SMALL_BYTES = 1 << 16  # below this the reference code is no slower than calling it


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["infer", "train"])
@pytest.mark.parametrize("layout", tuning.LAYOUTS)
@pytest.mark.parametrize(
    "model", ["resnet18", pytest.param("mobilenet_v2", marks=pytest.mark.whole_network)]
)
def test_no_large_step_runs_reference_code(
    model: str, layout: tuning.LayoutName, mode: Mode
) -> None:
    """oneDNN's reference code is hundreds of times slower and otherwise goes unnoticed."""
    prepared = prepare(Request(model, mode=mode, batch=2, resolution=64))
    clean = apply(capture(prepared).graph, CLEAN_UP)
    graph = apply(clean, onednn.passes(prepared.workload))
    tag = tuning.tag_of(layout)
    plan = build_plan(graph, Engine(), lambda position: tag, Switches(0)).plan
    slow = [
        (step.operation, step.modules[0], step.implementation)
        for step in plan.steps
        if step.implementation.startswith("ref")
        and max(plan.buffers[operand.buffer].bytes for operand in step.reads) > SMALL_BYTES
    ]
    assert slow == []
