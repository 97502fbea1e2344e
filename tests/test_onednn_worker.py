"""The level `onednn` as golow runs it: real worker processes, the protocol, the check."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import numpy as np
import pytest
import torch
from torch import nn

import golow
from bundles import NETWORKS, network_bundle
from conformance import (
    CHECKS,
    ENDINGS,
    Conversation,
    Subject,
    dies_with_its_parent,
    threads_at_work,
)
from golow import comparison, levels
from golow.bundle import Bundle, write_bundle
from golow.comparison import capture
from golow.entrant import Entrant, Silent
from golow.levels import onednn
from golow.levels.onednn import GRAPH, LAYOUTS, tuning
from golow.levels.onednn.program import OneDnn
from golow.lower.graph import decode_graph
from golow.lower.passes import CLEAN_UP, apply
from golow.record import Mode
from golow.standard import Standard
from golow.worker.client import Limits, worker_environment
from golow.workload import prepare

needs_package = pytest.mark.skipif(
    not onednn.probe().available, reason="the package of oneDNN is not installed"
)
MODES = ("infer", "train")
both_modes = pytest.mark.parametrize("mode", MODES)


@pytest.fixture(scope="session")
def workshop(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where bundles, lowered graphs and layouts of this session lie."""
    return tmp_path_factory.mktemp("onednn")


def make_subject(mode: Mode, workshop: Path, threads: int = 1) -> Subject:
    folder = workshop / f"{mode}-{threads}"
    if not folder.exists():
        network_bundle(folder, mode, threads=threads, batch=8 * threads)
    return subject_of(Bundle(folder), workshop / "cache")


def subject_of(bundle: Bundle, cache: Path) -> Subject:
    launch = onednn.prepare(bundle, "", cache)
    threads = bundle.workload.threads
    environment = worker_environment(launch.command[0], threads, launch.environment)
    return Subject(launch.command, environment, bundle)


def folder_of(subject: Subject) -> Path:
    """Where the lowered graph and the layouts are."""
    return Path(subject.command[-1])


def choose_layouts(folder: Path, *names: str) -> None:
    """Write layouts as an earlier start would have: these in turn, convolution by convolution."""
    places = tuning.convolutions(decode_graph((folder / GRAPH).read_bytes()))
    positions = {place: names[i % len(names)] for i, place in enumerate(places)}
    layouts = tuning.Layouts(positions=positions)
    (folder / LAYOUTS).write_bytes(msgspec.json.encode(layouts))


# ---------------------------------------------------------------- the protocol


@pytest.fixture(scope="module")
def loaded(request: pytest.FixtureRequest, workshop: Path) -> Iterator[Callable[[], Conversation]]:
    """One process for all checks of a mode, and another once it has ended."""
    subject = make_subject(request.param, workshop)
    conversations: list[Conversation] = []

    def conversation() -> Conversation:
        if not conversations or conversations[-1].process.poll() is not None:
            conversations.append(Conversation(subject))
            conversations[-1].load()
        return conversations[-1]

    yield conversation
    for ended in conversations:
        ended.__exit__(None, None, None)


@needs_package
@pytest.mark.parametrize("loaded", MODES, indirect=True)
@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_it_conforms(
    loaded: Callable[[], Conversation], check: Callable[[Conversation], None]
) -> None:
    check(loaded())


@needs_package
@pytest.mark.parametrize("check", ENDINGS, ids=lambda check: check.__name__)
def test_it_ends(check: Callable[[Subject], None], workshop: Path) -> None:
    check(make_subject("infer", workshop))


@needs_package
def test_it_dies_at_work_with_its_parent(workshop: Path) -> None:
    subject = make_subject("infer", workshop)
    choose_layouts(folder_of(subject), "any")
    dies_with_its_parent(subject, at_work=True)


@needs_package
@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="there is one core only")
@pytest.mark.parametrize("threads", [1, 2])
def test_it_runs_with_the_threads_that_golow_states(threads: int, workshop: Path) -> None:
    """Not the setting is looked at but the threads that got a core."""
    subject = make_subject("infer", workshop, threads)
    choose_layouts(folder_of(subject), "blocked")
    with Conversation(subject) as worker:
        worker.load()
        worker.time(30, 10)
        used = threads_at_work(worker, iterations=1000)
    if used is None:
        pytest.skip("this system does not tell how long a thread ran")
    assert used == threads


@needs_package
@both_modes
def test_outputs_are_the_same_again_and_after_timing(mode: Mode, workshop: Path) -> None:
    """To the bit: one plan, one order of summation."""
    subject = make_subject(mode, workshop)
    choose_layouts(folder_of(subject), "channels_last", "blocked")
    with Conversation(subject) as worker:
        worker.load()
        first = worker.outputs(0, 1)
        again = worker.outputs(0, 1)
        worker.time(5, 2)
        assert worker.ask(do="layers", iterations=2)["ok"] is True
        later = worker.outputs(0, 1)
    for other in (again, later):
        assert first.keys() == other.keys()
        assert [name for name in first if not np.array_equal(first[name], other[name])] == []


@needs_package
@both_modes
def test_every_layer_is_in_its_answer(mode: Mode, workshop: Path) -> None:
    subject = make_subject(mode, workshop)
    choose_layouts(folder_of(subject), "any")
    with Conversation(subject) as worker:
        worker.load()
        steps = worker.ask(do="layers", iterations=2)["layers"]
    forward = {path for step in steps if step["phase"] == "forward" for path in step["modules"]}
    assert {"conv1", "bn1", "conv2", "bn2", "fc"} <= forward
    convolutions = [step for step in steps if step["operation"].startswith("convolution")]
    assert len(convolutions) == (2 if mode == "infer" else 2 + 1 + 2)  # data of the second alone


@needs_package
def test_another_models_bundle_is_refused(workshop: Path, tmp_path: Path) -> None:
    other = write_bundle(prepare("mlp", batch=2), tmp_path / "other")[0]
    subject = make_subject("infer", workshop)
    choose_layouts(folder_of(subject), "any")
    with Conversation(subject) as worker:
        answer = worker.ask(do="load", bundle=str(other.folder))
        assert (answer["ok"], answer["error"]) == (False, "failed")
        worker.load()


# ---------------------------------------------------------------- without PyTorch

IMPORTED = """
import sys
from pathlib import Path
from golow.levels.onednn.program import OneDnn
OneDnn(Path({cache!r})).load(Path({bundle!r}))
wrong = [m for m in sys.modules if m.partition(".")[0] in ("torch", "psutil", "scipy")]
assert not wrong, wrong
"""


@needs_package
@both_modes
def test_there_is_no_torch_in_the_worker(mode: Mode, workshop: Path) -> None:
    """Neither as a Python module nor as a library in its memory."""
    subject = make_subject(mode, workshop)
    choose_layouts(folder_of(subject), "any")
    code = IMPORTED.format(cache=subject.command[-1], bundle=str(subject.bundle.folder))
    environment = {**os.environ, **subject.environment}
    subprocess.run([sys.executable, "-c", code], env=environment, check=True)
    with Conversation(subject) as worker:
        worker.load()
        worker.time(2, 0)
        maps = Path(f"/proc/{worker.process.pid}/maps").read_text()
    assert "libdnnl" in maps  # the library itself is there
    assert not [word for word in ("libtorch", "libc10", "/torch/", "openvino") if word in maps]


# ---------------------------------------------------------------- the numbers


@needs_package
@both_modes
@pytest.mark.parametrize(
    ("model", "batch", "resolution"),
    [
        ("lenet5", 4, None),
        ("mlp", 4, None),
        ("mnist_cnn", 4, None),
        pytest.param("resnet18", 2, 32, marks=pytest.mark.slow),
        pytest.param("mobilenet_v2", 2, 32, marks=pytest.mark.slow),
        pytest.param("alexnet", 2, 64, marks=pytest.mark.slow),
    ],
)
def test_a_model_of_the_zoo_matches(
    model: str, batch: int, resolution: int | None, mode: Mode, tmp_path: Path
) -> None:
    """With all layouts mixed, which no measurement would choose."""
    prepared = prepare(model, mode=mode, batch=batch, resolution=resolution)
    bundle = written(prepared, tmp_path / "bundle")
    choose_layouts(
        folder_of(subject_of(bundle, tmp_path / "cache")), "blocked", "any", "channels_last"
    )
    choice, limits = levels.choose("onednn", mode), Limits()
    standard = Standard(bundle, tmp_path, limits)
    with Entrant(choice, bundle, tmp_path, tmp_path / "cache", limits) as entrant:
        assert entrant.start(standard, False, Silent(), "1 of 1"), entrant.check.reason
        assert (entrant.check.verdict, entrant.check.reason) == ("match", "")


def written(prepared: golow.workload.Prepared, folder: Path) -> Bundle:
    bundle, prepared = write_bundle(prepared, folder)
    captured = capture(prepared)
    bundle.write_graph(apply(captured.graph, CLEAN_UP), captured.constants)
    return bundle


@needs_package
@both_modes
def test_a_whole_comparison(mode: Mode, tmp_path: Path) -> None:
    """It is timed, its layouts are measured once, and the start that is timed finds them."""
    result = golow.compare(
        f"{NETWORKS}:Network", levels=["vendor"], mode=mode, batch=4, input_shape=(3, 16, 16),
        threads=1, time_limit=0.1, cache=tmp_path,
    )  # fmt: skip
    run = result.run("onednn")
    assert (run.check.verdict, run.check.reason) == ("match", "")
    assert run.time is not None
    assert (run.quantity("build") or 0) > 0
    assert (run.quantity("allocated_peak") or 0) > 0
    assert run.quantity("capture") is not None


# ---------------------------------------------------------------- what it cannot do


class Sums(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.einsum("bi,bj->ij", x, x)


REFUSED = {
    "conv3d": (nn.Conv3d(2, 3, 2), (2, 2, 3, 4, 5), "conv3d"),
    "einsum": (Sums(), (2, 3), "einsum"),
    "recurrent": (nn.LSTM(3, 4), (5, 2, 3), "lstm"),
    "double": (nn.Linear(3, 4).double(), (2, 3), "float64"),
}


@needs_package
@pytest.mark.parametrize(
    "name",
    [
        *list(REFUSED)[:3],
        pytest.param(
            "double",
            marks=pytest.mark.xfail(
                strict=False, reason="an AssertionError of the builder, not Unsupported"
            ),
        ),
    ],
)
def test_an_unsupported_operation_is_named_and_survived(name: str, tmp_path: Path) -> None:
    layer, shape, part = REFUSED[name]
    x = torch.randn(shape, dtype=next(iter(layer.parameters()), torch.empty(0)).dtype)
    module = nn.Sequential(nn.ReLU(), nn.Sequential(layer))
    bundle = written(prepare(module, x), tmp_path / "bundle")
    with Conversation(subject_of(bundle, tmp_path / "cache")) as worker:
        answer = worker.ask(do="load", bundle=str(bundle.folder))
        assert worker.ask(do="dance")["error"] == "unknown_request"
    assert (answer["ok"], answer["error"]) == (False, "unsupported")
    assert answer["module"] == "1.0"
    assert answer["node"]
    assert part in answer["message"]


def test_without_the_package_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(package: str) -> str:
        raise onednn.PackageNotFoundError(package)

    monkeypatch.setattr(onednn, "version", missing)
    probe = levels.choose("onednn", "infer").level.probe()
    assert not probe.available
    assert probe.missing == "onednn-cpu-gomp is not installed"
    assert probe.mend == "pip install 'golow[onednn]'"
    assert "onednn" not in comparison._default_levels("infer")


def test_on_another_processor_it_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(onednn.platform, "machine", lambda: "aarch64")
    probe = onednn.probe()
    assert not probe.available
    assert "aarch64" in probe.missing


# ---------------------------------------------------------------- the layouts


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Measured in a moment, which counts as calm whatever else runs."""
    monkeypatch.setattr(tuning, "SECONDS", 0.001)
    monkeypatch.setattr(tuning, "CLEAN_SHARE", 100.0)


@pytest.fixture
def place(workshop: Path, tmp_path: Path) -> tuple[Path, Path]:
    """A cache of its own with the lowered graph, and the bundle."""
    make_subject("infer", workshop)
    bundle = Bundle(workshop / "infer-1")
    return folder_of(subject_of(bundle, tmp_path)), bundle.folder


@needs_package
@pytest.mark.usefixtures("quick")
def test_layouts_are_measured_once(place: tuple[Path, Path]) -> None:
    folder, bundle = place
    first = OneDnn(folder).load(bundle)
    kept = (folder / LAYOUTS).read_bytes()
    chosen = tuning.stored(folder / LAYOUTS)
    assert chosen is not None
    places = tuning.convolutions(decode_graph((folder / GRAPH).read_bytes()))
    assert list(chosen.positions) == places
    assert set(chosen.positions.values()) <= set(tuning.TAGS)
    assert {"any", "channels_last", "blocked"} <= set(chosen.milliseconds)
    assert first.notes == ()
    OneDnn(folder).load(bundle)
    assert (folder / LAYOUTS).read_bytes() == kept
    assert sorted(file.name for file in folder.iterdir()) == [GRAPH, LAYOUTS]


@needs_package
@pytest.mark.parametrize(("name", "text"), [("channels_last", "acdb"), ("blocked", "aBcd16b")])
def test_kept_layouts_are_those_that_run(name: str, text: str, place: tuple[Path, Path]) -> None:
    folder, bundle = place
    choose_layouts(folder, name)
    program = OneDnn(folder)
    program.load(bundle)
    steps = [step for step in program.built.plan.steps if step.operation == "convolution"]
    assert [step.writes[0].layout for step in steps] == [text] * 2


@needs_package
@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize("damage", [b"", b"{", b'{"positions": {"0": 3}}', b"\xff"])
def test_damaged_layouts_are_measured_again(damage: bytes, place: tuple[Path, Path]) -> None:
    folder, bundle = place
    (folder / LAYOUTS).write_bytes(damage)
    assert tuning.stored(folder / LAYOUTS) is None
    OneDnn(folder).load(bundle)
    assert tuning.stored(folder / LAYOUTS) is not None


@needs_package
@pytest.mark.usefixtures("quick")
@pytest.mark.xfail(strict=False, reason="Layouts.tag raises KeyError for a name it does not know")
def test_layouts_of_unknown_names_are_measured_again(place: tuple[Path, Path]) -> None:
    folder, bundle = place
    choose_layouts(folder, "sideways")
    OneDnn(folder).load(bundle)
    assert "sideways" not in (folder / LAYOUTS).read_text()


@needs_package
def test_layouts_of_a_busy_moment_are_not_kept(
    place: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tuning, "SECONDS", 0.001)
    monkeypatch.setattr(tuning, "CLEAN_SHARE", -1.0)
    folder, bundle = place
    report = OneDnn(folder).load(bundle)
    assert report.notes == ("layouts were chosen while other processes used the cores",)
    assert not (folder / LAYOUTS).exists()


# ---------------------------------------------------------------- memory

PLANS = """
import gc, sys
from pathlib import Path
from golow.levels.onednn.program import OneDnn
from golow.levels.onednn import tuning
program = OneDnn(Path({cache!r}))
program.load(Path({bundle!r}))
layouts = tuning.stored(Path({cache!r}) / "layouts.json")
for count in range(1, 1001):
    program._loaded(layouts).run()
    if count in (200, 1000):
        gc.collect()
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


@needs_package
@both_modes
def test_a_thousand_plans_leave_nothing_behind(mode: Mode, tmp_path: Path) -> None:
    bundle = written(prepare(Little(), torch.randn(2, 3, 9, 9), mode=mode), tmp_path / "bundle")
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
    assert abs(late - early) < 2048  # KiB
