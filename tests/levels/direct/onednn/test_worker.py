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
from golow.check.checked_level import CheckedLevel
from golow.check.reference import Standard
from golow.levels import ladder
from golow.levels.direct.onednn import level as onednn
from golow.levels.lowering import GRAPH
from golow.levels.starter import Starter
from golow.lower.ir.graph import decode_graph, encode_graph
from golow.records.errors import Unsupported
from golow.records.workload import Mode
from golow.workload.bundle import write_bundle
from golow.workload.prepare import prepare
from golow.workload.request import Request
from support.direct.onednn_subjects import (
    choose_layouts,
    folder_of,
    make_subject,
    subject_of,
    written,
)
from support.workers.bundles import NETWORKS
from support.workers.conformance import CHECKS, ENDINGS, dies_with_its_parent
from support.workers.conversation import Conversation, Subject
from support.workers.workers_kept import kept_loaded, require_threads

needs_package = pytest.mark.skipif(
    not onednn.probe().available, reason="the package of oneDNN is not installed"
)
pytestmark = pytest.mark.usefixtures("forked")

MODES = ("infer", "train")
both_modes = pytest.mark.parametrize("mode", MODES)


@pytest.fixture(scope="session")
def workshop(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where bundles, lowered graphs and layouts of this session are stored."""
    return tmp_path_factory.mktemp("onednn")


# ---------------------------------------------------------------- the protocol


@pytest.fixture(scope="module")
def loaded(request: pytest.FixtureRequest, workshop: Path) -> Iterator[Callable[[], Conversation]]:
    """One process for all checks of a mode, and another once it has ended."""
    with kept_loaded(make_subject(request.param, workshop)) as conversation:
        yield conversation


@needs_package
@pytest.mark.parametrize("loaded", MODES, indirect=True)
@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_it_conforms(
    loaded: Callable[[], Conversation], check: Callable[[Conversation], None]
) -> None:
    check(loaded())


@pytest.mark.slow
@needs_package
@pytest.mark.parametrize("check", ENDINGS, ids=lambda check: check.__name__)
def test_it_ends(check: Callable[[Subject], None], workshop: Path) -> None:
    check(make_subject("infer", workshop))


@pytest.mark.slow
@needs_package
def test_it_dies_at_work_with_its_parent(workshop: Path) -> None:
    subject = make_subject("infer", workshop)
    choose_layouts(folder_of(subject), "any")
    dies_with_its_parent(subject, at_work=True)


@pytest.mark.slow
@needs_package
@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="there is one core only")
@pytest.mark.parametrize("threads", [1, 2])
def test_it_runs_with_the_threads_that_golow_states(threads: int, workshop: Path) -> None:
    subject = make_subject("infer", workshop, threads)
    choose_layouts(folder_of(subject), "blocked")
    require_threads(subject, threads, iterations=300)


@pytest.mark.slow
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


@pytest.mark.slow
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


@pytest.mark.slow
@needs_package
def test_another_models_bundle_is_refused(workshop: Path, tmp_path: Path) -> None:
    other = write_bundle(prepare(Request("mlp", batch=2)), tmp_path / "other")[0]
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
from golow.levels.direct.onednn.run.program import OneDnn
OneDnn(Path({cache!r})).load(Path({bundle!r}))
wrong = [m for m in sys.modules if m.partition(".")[0] in ("torch", "psutil", "scipy")]
assert not wrong, wrong
"""


@pytest.mark.slow
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
    assert not [
        word for word in ("libtorch", "libc10", "-packages/torch/", "openvino") if word in maps
    ]


# ---------------------------------------------------------------- the numbers


@pytest.mark.slow
@needs_package
@both_modes
@pytest.mark.parametrize(
    ("model", "batch", "resolution"),
    [
        ("lenet5", 4, None),
        ("mlp", 4, None),
        ("mnist_cnn", 4, None),
        pytest.param("resnet18", 2, 32, marks=pytest.mark.whole_network),
        pytest.param("mobilenet_v2", 2, 32, marks=pytest.mark.whole_network),
    ],
)
def test_a_model_of_the_zoo_matches(
    model: str, batch: int, resolution: int | None, mode: Mode, tmp_path: Path
) -> None:
    """With all layouts mixed, which no measurement would choose."""
    prepared = prepare(Request(model, mode=mode, batch=batch, resolution=resolution, threads=1))
    bundle = written(prepared, tmp_path / "bundle")
    choose_layouts(
        folder_of(subject_of(bundle, tmp_path / "cache")), "blocked", "any", "channels_last"
    )
    choice, starter = ladder.choose("onednn", mode), Starter()
    standard = Standard(bundle, tmp_path, starter)
    with CheckedLevel(choice, bundle, tmp_path / "cache", starter) as level:
        assert level.start(standard, False, "1 of 1"), level.check.reason
        assert (level.check.verdict, level.check.reason) == ("match", "")


@needs_package
@pytest.mark.whole_network
def test_a_whole_comparison(tmp_path: Path) -> None:
    """It is timed, its layouts are measured once, and the start that is timed finds them."""
    result = golow.compare(
        f"{NETWORKS}:Network", levels=["vendor"], mode="train", batch=4, input_shape=(3, 16, 16),
        threads=1, time_limit=0.1, cache=tmp_path,
    )  # fmt: skip
    run = result.run("onednn")
    assert (run.check.verdict, run.check.reason) == ("match", "")
    assert run.time is not None
    assert (run.quantity("build") or 0) > 0
    assert (run.quantity("allocated_peak") or 0) > 0
    assert run.quantity("capture") is not None


class Idle(nn.Module):
    """A parameter that changes nothing, as attention's biases where there is one position."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.bias = nn.Linear(4, 4), nn.Parameter(torch.zeros(4, 1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layer(x) * (x[:, :, None] + self.bias).softmax(2).squeeze(2)


@pytest.mark.slow
@needs_package
def test_a_gradient_of_zero_is_a_result_of_a_timed_step() -> None:
    """A saved state leaves out what the optimizer keeps of it; the result of a step does not."""
    result = golow.compare(
        Idle(), (torch.randn(4, 4),), levels=["eager", "onednn"], mode="train", threads=1,
        time_limit=0.1,
    )  # fmt: skip
    run = result.run("onednn")
    assert (run.check.verdict, run.check.reason) == ("match", "")


# ---------------------------------------------------------------- what it cannot do


class Inverse(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.lgamma(x)


REFUSED = {
    "inverse": (Inverse(), (2, 3), "lgamma"),
    "double": (nn.Linear(3, 4).double(), (2, 3), "float64"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_an_unsupported_operation_is_named_before_a_worker_starts(
    name: str, tmp_path: Path
) -> None:
    layer, shape, part = REFUSED[name]
    x = torch.randn(shape, dtype=next(iter(layer.parameters()), torch.empty(0)).dtype)
    module = nn.Sequential(nn.ReLU(), nn.Sequential(layer))
    bundle = written(prepare(Request(module, x)), tmp_path / "bundle")
    with pytest.raises(Unsupported) as raised:
        onednn.prepare(bundle, "", tmp_path / "cache")
    assert raised.value.level == "onednn"
    # float64 is met in the first layer already
    assert raised.value.module == ("0" if name == "double" else "1.0")
    assert raised.value.node
    assert part in raised.value.reason
    assert not (tmp_path / "cache").exists()


@pytest.mark.slow
@needs_package
def test_an_unsupported_operation_is_named_by_the_worker_and_survived(tmp_path: Path) -> None:
    """In a graph that nobody was asked about."""
    subject = make_subject("infer", tmp_path)
    file = folder_of(subject) / GRAPH
    graph = decode_graph(file.read_bytes())
    *others, last = graph.nodes
    planted = msgspec.structs.replace(last, op="aten.cos.default")
    file.write_bytes(encode_graph(msgspec.structs.replace(graph, nodes=(*others, planted))))
    with Conversation(subject) as worker:
        answer = worker.ask(do="load", bundle=str(subject.bundle.folder))
        assert worker.ask(do="dance")["error"] == "unknown_request"
    assert (answer["ok"], answer["error"]) == (False, "unsupported")
    assert (answer["module"], answer["node"]) == (last.module, last.name)
    assert "aten.cos.default" in answer["message"]


def test_without_the_package_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(package: str) -> str:
        raise onednn.PackageNotFoundError(package)

    monkeypatch.setattr(onednn, "version", missing)
    probe = ladder.choose("onednn", "infer").level.probe()
    assert not probe.available
    assert probe.missing == "onednn-cpu-gomp is not installed"
    assert probe.fix == "pip install 'golow[onednn]'"
    assert "onednn" not in ladder.default("infer", "cpu")


def test_on_another_processor_it_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(onednn.platform, "machine", lambda: "aarch64")
    probe = onednn.probe()
    assert not probe.available
    assert "aarch64" in probe.missing
