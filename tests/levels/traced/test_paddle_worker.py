"""The level `paddle` as golow runs it: real worker processes, the protocol, the check."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
from torch import nn

from golow.check.checked_level import CheckedLevel
from golow.check.reference import Standard
from golow.levels import ladder
from golow.levels.probe import Probe
from golow.levels.starter import Starter
from golow.levels.traced.paddle import level as paddle
from golow.lower.ir.clean_up import CLEAN_UP
from golow.lower.ir.pass_runner import apply
from golow.records.errors import Unsupported
from golow.records.workload import Mode, Optimizer
from golow.worker.process import worker_environment
from golow.workload.bundle import Bundle, write_bundle
from golow.workload.graph_capture import capture
from golow.workload.prepare import prepare
from golow.workload.request import Request
from support.workers.bundles import network_bundle
from support.workers.conformance import CHECKS
from support.workers.conversation import Conversation, Subject
from support.workers.workers_kept import kept_loaded

needs_package = pytest.mark.skipif(
    not paddle.probe().available, reason="PaddlePaddle is not installed"
)
MODES = ("infer", "train")
both_modes = pytest.mark.parametrize("mode", MODES)
LEVELS = ("paddle", "paddle:static")


@pytest.fixture(scope="module")
def workshop(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where bundles and sources are stored."""
    return tmp_path_factory.mktemp("paddle")


def make_subject(mode: Mode, workshop: Path, variant: str = "") -> Subject:
    folder = workshop / mode
    if not folder.exists():
        network_bundle(folder, mode, threads=1, batch=8)
    bundle = Bundle(folder)
    launch = paddle.prepare(bundle, variant, workshop / "cache")
    environment = worker_environment(launch.command[0], 1, launch.environment)
    return Subject(launch.command, environment, bundle)


@pytest.fixture(scope="module")
def loaded(request: pytest.FixtureRequest, workshop: Path) -> Iterator[Callable[[], Conversation]]:
    """One process for all checks of a mode, and another once it has ended."""
    with kept_loaded(make_subject(*request.param[:1], workshop, request.param[1])) as conversation:
        yield conversation


@needs_package
@pytest.mark.parametrize(
    "loaded",
    [("infer", ""), ("train", ""), ("infer", "static"), ("train", "static")],
    indirect=True,
    ids=lambda given: "-".join(filter(None, given)),
)
@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_it_conforms(
    loaded: Callable[[], Conversation], check: Callable[[Conversation], None]
) -> None:
    check(loaded())


def write(request: Request, folder: Path) -> Bundle:
    """The bundle of a workload, with its graph."""
    bundle, prepared = write_bundle(prepare(request), folder)
    captured = capture(prepared)
    bundle.write_graph(apply(captured.graph, CLEAN_UP), captured.constants)
    return bundle


@needs_package
@both_modes
def test_there_is_no_torch_in_the_worker(mode: Mode, workshop: Path) -> None:
    """Neither as a Python module nor as a library in its memory."""
    subject = make_subject(mode, workshop)
    code = (
        "import sys; from pathlib import Path\n"
        "from golow.levels.traced.paddle.program import Paddle\n"
        f"worker = Paddle('dynamic', Path({subject.command[-1]!r}))\n"
        f"worker.load(Path({str(subject.bundle.folder)!r}))\n"
        "assert 'paddle' in sys.modules\n"
        "wrong = [m for m in sys.modules if m.partition('.')[0] == 'torch']\n"
        "assert not wrong, wrong"
    )
    environment = {**os.environ, **subject.environment}
    subprocess.run([sys.executable, "-c", code], env=environment, check=True)
    with Conversation(subject) as worker:
        worker.load()
        maps = Path(f"/proc/{worker.process.pid}/maps").read_text()
    assert "paddle" in maps
    assert not [word for word in ("libtorch", "libc10", "/torch/") if word in maps]


@needs_package
@both_modes
@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize(
    ("model", "batch", "resolution"),
    [
        ("lenet5", 4, None),
        ("mnist_cnn", 4, None),
        pytest.param("resnet18", 2, 32, marks=pytest.mark.whole_network),
        pytest.param("mobilenet_v1", 2, 32, marks=pytest.mark.whole_network),
        pytest.param("gnmt", 2, None, marks=pytest.mark.whole_network),
        pytest.param("ncf", 16, None, marks=pytest.mark.whole_network),
    ],
)
def test_a_model_of_the_zoo_matches(
    model: str, batch: int, resolution: int | None, level: str, mode: Mode, tmp_path: Path
) -> None:
    request = Request(model, mode=mode, batch=batch, resolution=resolution)
    assert judged(level, request, tmp_path) == ("match", "")


def judged(level: str, request: Request, folder: Path) -> tuple[str, str]:
    """The verdict on a level, and its reason."""
    bundle = write(request, folder / "bundle")
    starter = Starter()
    standard = Standard(bundle, folder, starter)
    chosen = ladder.choose(level, request.mode)
    with CheckedLevel(chosen, bundle, folder / "cache", starter) as checked:
        checked.start(standard, False, "1 of 1")
        return checked.check.verdict, checked.check.reason


class Embedded(nn.Module):
    """Rows of a table, of which a batch reads a few, and one of them twice."""

    def __init__(self) -> None:
        super().__init__()
        self.table, self.last = nn.Embedding(20, 6), nn.Linear(6, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = self.last(self.table(x).sum(1))
        return found


@needs_package
@pytest.mark.parametrize("level", LEVELS)
def test_an_embedding_moves_as_all_of_its_rows_do(level: str, tmp_path: Path) -> None:
    """A batch reads a few rows; momentum and decay concern every row."""
    optimizer = Optimizer(learning_rate=0.05, momentum=0.9, weight_decay=0.1)
    inputs = torch.tensor([[1, 1, 2], [3, 5, 7]])
    request = Request(Embedded(), inputs, mode="train", optimizer=optimizer)
    assert judged(level, request, tmp_path) == ("match", "")


class WithoutGradient(nn.Module):
    """Part of what it multiplies is computed where PyTorch records no gradient."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(6, 5), nn.Linear(5, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.first(x)
        return self.last(x * x.detach().abs().mean())


@needs_package
def test_a_gradient_that_pytorch_stops_is_not_taken_for_right(tmp_path: Path) -> None:
    """PaddlePaddle makes its own gradients, and no graph says where PyTorch records none."""
    request = Request(WithoutGradient(), torch.randn(8, 6), mode="train")
    assert judged("paddle", request, tmp_path)[0] == "differs"


# ---------------------------------------------------------------- refusals and the source


def test_it_says_how_to_install_paddle(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(paddle, "find_spec", lambda name: None)
    wanted = Probe(False, "paddlepaddle is not installed", "pip install 'golow[paddle]'")
    assert paddle.probe() == wanted


def test_an_operator_that_it_lacks_is_refused_by_name(tmp_path: Path) -> None:
    class Gamma(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.lgamma(x)

    bundle = write(Request(Gamma(), torch.rand(4, 3)), tmp_path / "bundle")
    with pytest.raises(Unsupported, match=r"aten.lgamma.default is not implemented"):
        paddle.prepare(bundle, "", tmp_path / "cache")


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
