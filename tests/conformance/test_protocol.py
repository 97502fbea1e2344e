"""Every worker speaks the protocol: the conformance suite over all of them."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from pathlib import Path

import pytest
import torch

import golow
from golow.levels import ladder
from golow.records.workload import Mode
from golow.worker.process import worker_environment
from golow.workload.bundle import Bundle
from support.one_run import program_cache
from support.places import WORKERS
from support.workers.bundles import NETWORKS, linear_bundle, network_bundle, product_bundle
from support.workers.conformance import CHECKS, ENDINGS, dies_with_its_parent
from support.workers.conversation import Conversation, Subject
from support.workers.forked_workers import ForkServer, forked_workers
from support.workers.workers_kept import require_threads

pytestmark = pytest.mark.slow

TINY = WORKERS / "tiny.c"

SLOW = pytest.mark.whole_network
LEVELS = [  # name, modes, whether it is built for long
    ("eager", ("infer", "train"), False),
    ("eager:channels_last", ("infer", "train"), False),
    ("eager:float64", ("infer", "train"), False),
    ("torchscript", ("infer", "train"), False),
    ("compile", ("infer", "train"), True),
    ("compile:freezing", ("infer",), True),
    ("libtorch", ("infer", "train"), False),
    ("tiny", ("infer",), False),
    ("plant", ("infer",), False),
]
WORKERS = [
    pytest.param((name, mode), id=f"{name}-{mode}", marks=SLOW if built else ())
    for name, modes, built in LEVELS
    for mode in modes
]
ONE_OF_EACH = [  # a variant ends as its level does, and what serves eager serves torchscript
    pytest.param((name, "infer"), id=name, marks=SLOW if built or name == "torchscript" else ())
    for name, _, built in LEVELS
    if ":" not in name
]


@pytest.fixture(scope="session")
def workshop(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where bundles and builds of this session are stored."""
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
    command: tuple[str, ...]
    if name == "plant":
        command = (sys.executable, "-m", "golow.worker.plant", "--products", "20")
        bundle = product_bundle(workshop / "product")
        return Subject(command, worker_environment(command[0], threads, {}), bundle)
    if name == "tiny":
        folder = workshop / "linear"
        bundle = linear_bundle(folder) if not folder.exists() else Bundle(folder)
        command = (str(request.getfixturevalue("tiny")),)
        return Subject(command, worker_environment(command[0], threads, {}), bundle)
    folder = workshop / f"{mode}-{threads}"
    if not folder.exists():
        network_bundle(folder, mode, threads=threads, batch=8 * threads)
    bundle = Bundle(folder)
    chosen = ladder.choose(name, mode)
    launch = chosen.prepare(bundle, program_cache(workshop.parent))
    environment = worker_environment(launch.command[0], threads, launch.environment)
    return Subject(launch.command, environment, bundle)


class Loaded:
    """The conversation of a subject, begun when it is first wanted, and anew once it has ended. Its
    worker is forked where that is the same: the checks are of what it answers."""

    def __init__(self, subject: Subject, server: ForkServer) -> None:
        self.subject, self.server = subject, server
        self.current: Conversation | None = None

    def conversation(self) -> Conversation:
        if self.current is None or self.current.process.poll() is not None:
            self.close()
            with nullcontext() if torch.cuda.is_available() else forked_workers(self.server):
                self.current = Conversation(self.subject)
            self.current.load()
        return self.current

    def close(self) -> None:
        if self.current is not None:
            self.current.__exit__(None, None, None)
            self.current = None


@pytest.fixture(scope="module")
def loaded(subject: Subject, fork_server: ForkServer) -> Iterator[Loaded]:
    """One process for all checks of a worker."""
    worker = Loaded(subject, fork_server)
    yield worker
    worker.close()


@pytest.mark.parametrize("subject", WORKERS, indirect=True)
@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_a_worker_conforms(loaded: Loaded, check: Callable[[Conversation], None]) -> None:
    check(loaded.conversation())


@pytest.mark.parametrize("subject", ONE_OF_EACH, indirect=True)
@pytest.mark.parametrize("check", ENDINGS, ids=lambda check: check.__name__)
def test_a_worker_ends(subject: Subject, check: Callable[[Subject], None]) -> None:
    check(subject)


@pytest.mark.parametrize("subject", ONE_OF_EACH, indirect=True)
def test_a_worker_at_work_dies_with_its_parent(subject: Subject) -> None:
    """It does not read then that its input has closed: golow's own ask the system to end them."""
    dies_with_its_parent(subject, at_work=True)


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="there is one core only")
@pytest.mark.parametrize(
    "name",
    ["eager", "torchscript", pytest.param("compile", marks=SLOW), "libtorch"],
)
def test_a_level_runs_with_the_threads_that_golow_states(
    name: str, workshop: Path, request: pytest.FixtureRequest
) -> None:
    """With one thread each conversation above is."""
    require_threads(make_subject(name, "infer", workshop, request, threads=2), 2, iterations=100)


@pytest.mark.usefixtures("forked")
def test_a_runtime_of_ones_own_joins_the_ladder(tiny: Path, tmp_path: Path) -> None:
    """A program in C that knows nothing of golow but the protocol gets its verdict and a time."""
    result = golow.compare(
        f"{NETWORKS}:Linear",
        levels=["eager"],
        workers={"tiny": [str(tiny)]},
        batch=4,
        input_shape=(16,),
        threads=1,
        time_limit=0.1,
        cache=tmp_path,
    )
    run = result.run("tiny")
    assert (run.check.verdict, run.check.reason) == ("match", "")
    assert run.time is not None
    assert run.time.value > 0
    assert run.quantity("ready") is not None
    assert run.quantity("allocated_peak") is None  # it does not tell
    assert run.quantity("resident") is not None
