"""Every worker speaks the protocol: the conformance suite over all of them."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import golow
from bundles import NETWORKS, linear_bundle, network_bundle
from conformance import CHECKS, ENDINGS, Conversation, Subject, dies_with_its_parent, running_ns
from golow import levels
from golow.record import Mode
from golow.worker.client import worker_environment

TINY = Path(__file__).parent / "workers" / "tiny.c"

SLOW = pytest.mark.slow
WORKERS = [
    pytest.param(("eager", "infer"), id="eager-infer"),
    pytest.param(("eager", "train"), id="eager-train"),
    pytest.param(("eager:channels_last", "infer"), id="channels_last-infer"),
    pytest.param(("eager:channels_last", "train"), id="channels_last-train"),
    pytest.param(("eager:float64", "train"), id="float64-train"),
    pytest.param(("torchscript", "infer"), id="torchscript-infer"),
    pytest.param(("torchscript", "train"), id="torchscript-train"),
    pytest.param(("compile", "infer"), id="compile-infer", marks=SLOW),
    pytest.param(("compile", "train"), id="compile-train", marks=SLOW),
    pytest.param(("compile:freezing", "infer"), id="freezing-infer", marks=SLOW),
    pytest.param(("libtorch", "infer"), id="libtorch-infer", marks=SLOW),
    pytest.param(("libtorch", "train"), id="libtorch-train", marks=SLOW),
    pytest.param(("tiny", "infer"), id="tiny"),
]


@pytest.fixture(scope="session")
def workshop(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where bundles and builds of this session lie."""
    return tmp_path_factory.mktemp("protocol")


@pytest.fixture(scope="session")
def tiny(workshop: Path) -> Path:
    """The worker in C, compiled."""
    if shutil.which("cc") is None:
        pytest.skip("there is no C compiler")
    program = workshop / "tiny"
    subprocess.run(
        ["cc", "-O2", "-Wall", "-Wextra", "-Werror", "-o", program, TINY, "-lm"], check=True
    )
    return program


@pytest.fixture(scope="module")
def subject(request: pytest.FixtureRequest, workshop: Path) -> Subject:
    """A worker's command with a bundle that it can run."""
    name, mode = request.param
    return make_subject(name, mode, workshop, request)


def make_subject(
    name: str, mode: Mode, workshop: Path, request: pytest.FixtureRequest, threads: int = 1
) -> Subject:
    if name == "tiny":
        folder = workshop / "linear"
        bundle = linear_bundle(folder) if not folder.exists() else golow.bundle.Bundle(folder)
        command: tuple[str, ...] = (str(request.getfixturevalue("tiny")),)
        return Subject(command, worker_environment(command[0], threads, {}), bundle)
    folder = workshop / f"{mode}-{threads}"
    if not folder.exists():
        network_bundle(folder, mode, threads=threads, batch=8 * threads)
    bundle = golow.bundle.Bundle(folder)
    level, variant = levels.choose(name, mode)
    launch = level.prepare(bundle, variant, workshop / "cache")
    environment = worker_environment(launch.command[0], threads, launch.environment)
    return Subject(launch.command, environment, bundle)


class Loaded:
    """The conversation of a subject, begun when it is first wanted, and anew once it has ended."""

    def __init__(self, subject: Subject) -> None:
        self.subject = subject
        self.current: Conversation | None = None

    def conversation(self) -> Conversation:
        if self.current is None or self.current.process.poll() is not None:
            self.close()
            self.current = Conversation(self.subject)
            self.current.load()
        return self.current

    def close(self) -> None:
        if self.current is not None:
            self.current.__exit__(None, None, None)
            self.current = None


@pytest.fixture(scope="module")
def loaded(subject: Subject) -> Iterator[Loaded]:
    """One process for all checks of a worker."""
    worker = Loaded(subject)
    yield worker
    worker.close()


@pytest.mark.parametrize("subject", WORKERS, indirect=True)
@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_a_worker_conforms(loaded: Loaded, check: Callable[[Conversation], None]) -> None:
    check(loaded.conversation())
