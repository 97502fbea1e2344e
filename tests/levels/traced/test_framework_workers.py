"""The levels `jax`, `tensorflow` and `paddle` as golow runs them: real worker processes, the
protocol, the check."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from golow.levels.probe import Probe
from golow.records.errors import Unsupported
from golow.records.workload import Mode, Optimizer
from golow.workload.request import Request
from support.workers.conformance import CHECKS
from support.workers.conversation import Conversation
from support.workers.frameworks import FRAMEWORKS, Framework, judged, write
from support.workers.workers_kept import kept_loaded

both_modes = pytest.mark.parametrize("mode", ["infer", "train"])
every_framework = pytest.mark.parametrize("framework", FRAMEWORKS, ids=lambda given: given.name)


def where_installed(cases: Iterable[tuple[Framework, *tuple[str, ...]]]) -> Iterator[Any]:
    """Cases that skip without their framework, named after it and the rest."""
    for framework, *rest in cases:
        missing = f"{framework.distribution} is not installed"
        mark = pytest.mark.skipif(not framework.is_here, reason=missing)
        name = "-".join(filter(None, (framework.name, *rest)))
        yield pytest.param(framework, *rest, marks=mark, id=name)


every_level = pytest.mark.parametrize(
    ("framework", "level"),
    list(where_installed((one, level) for one in FRAMEWORKS for level in one.levels)),
)
every_installed = pytest.mark.parametrize(
    "framework", list(where_installed((one,) for one in FRAMEWORKS))
)


@pytest.fixture(scope="module")
def workshops(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder for each framework's bundles, sources and what it compiled: each is made once."""
    return tmp_path_factory.mktemp("frameworks")


@pytest.fixture(scope="module")
def loaded(request: pytest.FixtureRequest, workshops: Path) -> Iterator[Callable[[], Conversation]]:
    """One process for all checks of a program, and another once it has ended."""
    framework, mode, variant = request.param
    with kept_loaded(framework.subject(mode, workshops / framework.name, variant)) as conversation:
        yield conversation


def programs() -> Iterator[Any]:
    """Every framework's modes and variants, as one parameter."""
    cases = ((one, *program) for one in FRAMEWORKS for program in one.programs)
    for case in where_installed(cases):
        yield pytest.param(case.values, marks=case.marks, id=case.id)


@pytest.mark.parametrize("loaded", list(programs()), indirect=True)
@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_it_conforms(
    loaded: Callable[[], Conversation], check: Callable[[Conversation], None]
) -> None:
    check(loaded())


@every_installed
@both_modes
def test_there_is_no_torch_in_the_worker(framework: Framework, mode: Mode, workshops: Path) -> None:
    """Neither as a Python module nor as a library in its memory."""
    subject = framework.subject(mode, workshops / framework.name)
    kind, argument = framework.worker
    code = (
        "import sys; from pathlib import Path\n"
        f"from golow.levels.traced.{framework.name}.program import {kind}\n"
        f"worker = {kind}({argument!r}, Path({subject.command[-1]!r}))\n"
        f"worker.load(Path({str(subject.bundle.folder)!r}))\n"
        f"assert {framework.package!r} in sys.modules\n"
        "wrong = [m for m in sys.modules if m.partition('.')[0] == 'torch']\n"
        "assert not wrong, wrong"
    )
    environment = {**os.environ, **subject.environment}
    subprocess.run([sys.executable, "-c", code], env=environment, check=True)
    with Conversation(subject) as worker:
        worker.load()
        maps = Path(f"/proc/{worker.process.pid}/maps").read_text()
    assert framework.package in maps
    assert not [word for word in ("libtorch", "libc10", "-packages/torch/") if word in maps]


@every_level
@both_modes
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
    framework: Framework,
    level: str,
    model: str,
    batch: int,
    resolution: int | None,
    mode: Mode,
    tmp_path: Path,
) -> None:
    request = Request(model, mode=mode, batch=batch, resolution=resolution)
    assert judged(level, request, tmp_path) == ("match", "")


class Embedded(nn.Module):
    """Rows of a table, of which a batch reads a few, and one of them twice."""

    def __init__(self) -> None:
        super().__init__()
        self.table, self.last = nn.Embedding(20, 6), nn.Linear(6, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = self.last(self.table(x).sum(1))
        return found


@every_level
def test_an_embedding_moves_as_all_of_its_rows_do(
    framework: Framework, level: str, tmp_path: Path
) -> None:
    """Where a framework gives the gradient as rows, momentum and decay concern every row."""
    optimizer = Optimizer(learning_rate=0.05, momentum=0.9, weight_decay=0.1)
    inputs = torch.tensor([[1, 1, 2], [3, 5, 7]])
    request = Request(Embedded(), inputs, mode="train", optimizer=optimizer)
    assert judged(level, request, tmp_path) == ("match", "")


class WithoutGradient(nn.Module):
    """Half of the product is computed where PyTorch records no gradient."""

    def __init__(self, hidden: bool) -> None:
        super().__init__()
        self.first, self.last, self.hidden = nn.Linear(6, 5), nn.Linear(5, 3), hidden

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.first(x)
        if self.hidden:
            with torch.no_grad():
                scale = x.abs().mean()
        else:
            scale = x.detach().abs().mean()
        return self.last(x * scale)


@every_installed
@pytest.mark.parametrize("hidden", [True, False], ids=["no_grad", "detach"])
def test_a_gradient_that_pytorch_stops_is_not_taken_for_right(
    framework: Framework, hidden: bool, tmp_path: Path
) -> None:
    """Frameworks differentiate by themselves, and the graph does not tell where PyTorch stops."""
    request = Request(WithoutGradient(hidden), torch.randn(8, 6), mode="train")
    assert judged(framework.name, request, tmp_path)[0] == "differs"


# ---------------------------------------------------------------- refusals


@every_framework
def test_how_to_install_it_is_told(framework: Framework, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(framework.level, "find_spec", lambda name: None)
    missing, fix = f"{framework.distribution} is not installed", f"golow[{framework.name}]"
    assert framework.level.probe() == Probe(False, missing, f"pip install '{fix}'")


@every_framework
def test_an_operator_that_it_lacks_is_refused_by_name(framework: Framework, tmp_path: Path) -> None:
    class Gamma(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.lgamma(x)

    bundle = write(Request(Gamma(), torch.rand(4, 3)), tmp_path / "bundle")
    with pytest.raises(Unsupported, match=r"aten.lgamma.default is not implemented"):
        framework.level.prepare(bundle, "", tmp_path / "cache")
