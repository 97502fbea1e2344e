"""The levels that run the captured graph in another framework: what their tests share."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType
from typing import NamedTuple

from golow.check.checked_level import CheckedLevel
from golow.check.reference import Standard
from golow.levels import ladder
from golow.levels.starter import Starter
from golow.levels.traced.jax import level as jax
from golow.levels.traced.paddle import level as paddle
from golow.levels.traced.tensorflow import level as tensorflow
from golow.lower.ir.clean_up import CLEAN_UP
from golow.lower.ir.pass_runner import apply
from golow.records.workload import Mode
from golow.worker.process import worker_environment
from golow.workload.bundle import Bundle, write_bundle
from golow.workload.graph_capture import capture
from golow.workload.prepare import prepare
from golow.workload.request import Request
from support.workers.bundles import network_bundle
from support.workers.conversation import Subject


class Framework(NamedTuple):
    """A level that runs one.

    package: its Python package, whose name is also part of a library's in its process.
    distribution: as pip knows it. worker: the class of its program, and the first argument of that
    class. programs: modes and variants that must conform. levels: the level and its variants.
    """

    name: str
    level: ModuleType
    package: str
    distribution: str
    worker: tuple[str, str]
    programs: tuple[tuple[Mode, str], ...]
    levels: tuple[str, ...]

    @property
    def is_here(self) -> bool:
        """True if it is installed."""
        return bool(self.level.probe().available)

    def subject(self, mode: Mode, workshop: Path, variant: str = "", threads: int = 1) -> Subject:
        """A worker for a small network, whose bundle is written once into the workshop."""
        folder = workshop / f"{mode}-{threads}"
        if not folder.exists():
            network_bundle(folder, mode, threads=threads, batch=8 * threads)
        bundle = Bundle(folder)
        launch = self.level.prepare(bundle, variant, workshop / "cache")
        environment = worker_environment(launch.command[0], threads, launch.environment)
        return Subject(launch.command, environment, bundle)


JAX = Framework(
    "jax", jax, "jax", "jax", ("Jax", "plain"),
    (("infer", ""), ("train", ""), ("infer", jax.FREEZING)), ("jax",),
)  # fmt: skip
TENSORFLOW = Framework(
    "tensorflow", tensorflow, "tensorflow", "tensorflow", ("TensorFlow", "xla"),
    (("infer", ""), ("train", ""), ("train", "graph")), ("tensorflow", "tensorflow:graph"),
)  # fmt: skip
PADDLE = Framework(
    "paddle", paddle, "paddle", "paddlepaddle", ("Paddle", "dynamic"),
    (("infer", ""), ("train", ""), ("infer", "static"), ("train", "static")),
    ("paddle", "paddle:static"),
)  # fmt: skip
FRAMEWORKS = (JAX, TENSORFLOW, PADDLE)


def write(request: Request, folder: Path) -> Bundle:
    """The bundle of a workload, with its graph."""
    bundle, prepared = write_bundle(prepare(request), folder)
    captured = capture(prepared)
    bundle.write_graph(apply(captured.graph, CLEAN_UP), captured.constants)
    return bundle


def judged(level: str, request: Request, folder: Path) -> tuple[str, str]:
    """The verdict on a level, and its reason."""
    bundle = write(request, folder / "bundle")
    starter = Starter()
    standard = Standard(bundle, folder, starter)
    chosen = ladder.choose(level, request.mode)
    with CheckedLevel(chosen, bundle, folder / "cache", starter) as checked:
        checked.start(standard, False, "1 of 1")
        return checked.check.verdict, checked.check.reason
