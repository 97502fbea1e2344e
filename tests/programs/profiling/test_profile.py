"""`golow profile` from the command line and from Python, with real workers."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest
import torch
from rich.console import Console

import golow
from golow.api import ProfileResult
from golow.programs.profiling import store
from golow.programs.profiling.trace import read_trace
from golow.records.errors import GolowError
from golow.records.workload import Mode
from golow.report.profiling.table import render
from support import command
from support.places import ROOT
from support.records.saved_profile import saved_profile


@pytest.fixture(scope="module")
def folder(forked: None, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return saved_profile(tmp_path_factory.getbasetemp())[1]


@pytest.fixture(scope="module")
def profiled(forked: None, tmp_path_factory: pytest.TempPathFactory) -> ProfileResult:
    return saved_profile(tmp_path_factory.getbasetemp())[0]


def test_every_level_is_checked_timed_and_profiled(profiled: ProfileResult) -> None:
    [found] = profiled.profiles
    assert found.workload.mode == "train"
    for level in found.levels:
        assert level.verdict == "match", level.reason
        assert level.missing == ""
        assert level.steps == 3
        assert level.time is not None
        assert level.profiled is not None
        assert sum(part.share for part in level.summary) == pytest.approx(1)
        assert sum(part.seconds for part in level.summary) == pytest.approx(level.profiled)
    eager = found.levels[0]
    shapes = {item.shapes for item in eager.operators if item.name == "aten::conv2d"}
    assert len(shapes) == 2  # one a layer
    assert all(shape.startswith("[[4, ") for shape in shapes)
    sites = [
        Path(site).name for i in eager.operators if i.name == "aten::conv2d" for site in i.sites
    ]
    assert len(sites) == 2
    assert all(site.startswith("lenet.py:") for site in sites)
    assert any(item.self_host_memory > 0 for item in eager.operators)
    for level in found.levels[1:]:
        assert {"convolution", "convolution_backward_weights"} <= {i.name for i in level.operators}


def test_a_saved_profile_is_shown_again(profiled: ProfileResult, folder: Path) -> None:
    assert store.load(folder) == profiled.profiles
    for level in profiled.profiles[0].levels:
        assert len(read_trace(folder / level.trace).steps) == 3
    done = command.golow("show", str(folder))
    assert done.status == 0, done.error
    assert "without profiler" in done.output
    assert "aten::convolution_backward" in done.output
    assert max(map(len, done.output.splitlines())) <= 100
    with pytest.raises(GolowError, match="holds a profile already"):
        store.make_folder(folder)


@pytest.mark.parametrize("sort", ["time", "host-memory", "cpu-memory", "calls"])
def test_operators_are_shown_in_the_order_asked_for(profiled: ProfileResult, sort: str) -> None:
    text = io.StringIO()
    render(profiled.profiles, sort=sort, top=3, console=Console(file=text, width=100))
    shown = text.getvalue()
    assert "and " in shown
    operators = profiled.profiles[0].levels[0].operators
    first, *others = sorted(operators, key=KEYS[sort], reverse=True)[:3]
    lines = shown[shown.index("eager: operators") :].splitlines()
    assert any(first.name in line for line in lines[4:7]), shown
    sites = [item.sites[0] for item in (first, *others) if item.sites]
    assert ("your line" in shown) == bool(sites)
    assert all(Path(site).name.startswith("lenet.py:") for site in sites)
    assert ("lenet.py:" in shown) == bool(sites)


KEYS = {
    "time": lambda item: item.self_host,
    "host-memory": lambda item: item.self_host_memory,
    "cpu-memory": lambda item: item.self_host_memory,
    "calls": lambda item: item.calls,
}


def test_layers_stand_side_by_side(profiled: ProfileResult) -> None:
    text = io.StringIO()
    render(profiled.profiles, by="layer", console=Console(file=text, width=100))
    shown = text.getvalue()
    for words in ("By layer", "backward", "update", "total"):
        assert words in shown
    lines = shown.splitlines()
    assert max(map(len, lines)) <= 100
    convolutions = [line for line in lines if "Conv2d" in line]
    assert len(convolutions) == 4, shown  # two layers, forward and backward
    assert len(convolutions[0].split("%")) == len(profiled.profiles[0].levels) + 1


def test_a_profile_of_the_host_has_no_kernels(profiled: ProfileResult) -> None:
    text = io.StringIO()
    render(profiled.profiles, by="kernel", console=Console(file=text, width=100))
    assert "none: this is the host's profile" in text.getvalue()


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU")
@pytest.mark.parametrize("mode", ["infer", "train"])
def test_on_a_gpu_every_kernel_has_a_layer(mode: Mode, tmp_path: Path) -> None:
    """At the levels that keep layers; a CUDA graph's kernels are eager's. The cuDNN level's come
    from CUPTI, without a framework in the process."""
    levels = ["eager", "cudagraph", "libtorch", "cudnn"]
    result = golow.profile(
        "resnet18", mode=mode, batch=8, resolution=64, device="cuda", levels=levels, steps=3,
        time_limit=2.0, folder=tmp_path / "out",
    )  # fmt: skip
    for level in result.profiles[0].levels:
        assert level.verdict == "match", level.reason
        assert not level.missing, level.missing
        assert level.gpu is not None
        assert 0 < level.gpu.utilization <= 1
        assert 0 < (level.gpu.occupancy or 0) <= 1
        idle = sum(part.share for part in level.idle)
        kernels = sum(part.share for part in level.summary if part.role == "kernel")
        assert idle + kernels <= 1.001
        placed = sum(k.seconds for k in level.kernels if k.layer or k.phase == "update")
        assert placed > 0.8 * sum(k.seconds for k in level.kernels), level.level
        assert all(k.grid and k.block and k.registers for k in level.kernels), level.level
    by_name = {level.level: level for level in result.profiles[0].levels}
    waits = {
        name: next(part.share for part in level.idle if part.role == "waiting for the host")
        for name, level in by_name.items()
    }
    assert waits["cudagraph"] < waits["eager"]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--by", "magic"), "profiles have no view 'magic'"),
        (("--sort", "beauty"), "operators cannot be sorted by 'beauty'"),
        (("--precision", "bf17"), "there is no precision 'bf17'"),
        (("--steps", "0"), "--steps 0 profiles nothing"),
        (("--save", "-"), "--save - means standard output"),
        (("--save", "README.md"), "README.md"),
    ],
)
def test_what_cannot_be_is_refused_at_once(options: tuple[str, str], said: str) -> None:
    done = command.golow("profile", "lenet5", *options, folder=ROOT)
    assert done.status == 2, done.error
    assert said in done.error
    assert "Traceback" not in done.error


def test_a_folder_that_holds_no_trace_says_so(tmp_path: Path) -> None:
    (tmp_path / "profile.json").write_text(json.dumps({"profiles": 3}))
    done = command.golow("show", str(tmp_path))
    assert done.status == 2
    assert "profile.json cannot be read" in done.error
