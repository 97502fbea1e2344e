"""Training steps of `cudnn` as C++ projects without a GPU: in Python they run on the host, and in
C++ on `gpu_stand_in.cpp`."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor, nn

from golow.levels.called.training.emission import Evaluated, step_network
from golow.levels.called.training.training_step import TrainingStep
from golow.levels.called.training.written_step import Names, OnGpu
from golow.levels.direct.cudnn.problems.gemm import Problem
from golow.levels.direct.emit.training import TrainingNetwork
from golow.lower.capture.shared_tensors import first_names
from golow.records.workload import Optimizer, Precision
from golow.workload.batch import Batch
from support import one_run
from support.direct import steps_on_host
from support.direct.emitted_on_host import ALGORITHM, build, machine, network_of
from support.direct.emitted_trainings import SMALLER, Tied, batches
from support.direct.gpu_on_host import HostEngine, HostEngines
from support.direct.training_steps import stepped

SEED = 5


class Dropping(nn.Module):
    """A norm with statistics, two layers that drop, a frozen one, and one that is not called."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.norm = nn.Linear(4, 16), nn.BatchNorm1d(16)
        self.frozen, self.last, self.unused = nn.Linear(16, 16), nn.Linear(16, 5), nn.Linear(2, 2)
        self.frozen.requires_grad_(False)

    def forward(self, x: Tensor) -> Tensor:
        y = nn.functional.dropout(torch.relu(self.norm(self.first(x))), 0.25, self.training)
        y = nn.functional.dropout(torch.tanh(self.frozen(y)), 0.5, self.training)
        found: Tensor = self.last(y)
        return found


class Case(NamedTuple):
    """A network in training, its optimizer, batches of two sizes, and the precision."""

    module: nn.Module
    optimizer: Optimizer
    batches: tuple[Batch, ...]
    precision: Precision


NAMES = ("tied", "dropping", "scaled")


@cache
def case(name: str) -> Case:
    torch.manual_seed(0)
    if name == "tied":
        adamw = Optimizer("adamw", learning_rate=0.01, clip=0.5)
        return Case(Tied().train(), adamw, batches((4,), words=True), "ieee")
    sgd = Optimizer(learning_rate=0.05, momentum=0.9, weight_decay=1e-3)
    if name == "dropping":
        return Case(Dropping().train(), sgd, batches((4,)), "ieee")
    scaled = nn.Sequential(nn.Linear(4, 16), nn.Tanh(), nn.Linear(16, 5)).train()
    return Case(scaled, sgd, batches((4,)), "fp16")


class WrittenEngine(HostEngine):
    """A product that is written as one of cuBLASLt's."""

    kind = "cublaslt"
    workspace = ALGORITHM.workspace

    @property
    def chosen(self) -> Any:
        return self._operation, ALGORITHM


class WrittenEngines(HostEngines):
    """Products alone."""

    def choose(self, operation: Any) -> Any:
        return WrittenEngine(operation, self.gpu) if isinstance(operation, Problem) else None


@contextmanager
def step_of(name: str) -> Iterator[TrainingStep]:
    """A step on the host, whose plans are built in the project's order."""
    module, optimizer, data, precision = case(name)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(steps_on_host, "HostEngines", WrittenEngines)
        with steps_on_host.steps_on_host():
            example = (data[0].inputs[0], data[0].targets[0])
            sizes = [SMALLER, len(example[0])]
            with stepped(
                module, optimizer, example, batch=sizes, precision=precision, seed=SEED
            ) as step:
                yield step


def written(name: str, step: TrainingStep) -> tuple[OnGpu, TrainingNetwork[Any]]:
    """What is written of a step, trained on the batches. Its outputs are PyTorch's."""
    module, optimizer, data, _ = case(name)
    names = Names(optimizer, first_names(module))

    def evaluated() -> Evaluated:
        own = copy.deepcopy(module).eval()
        own.load_state_dict(step.state_dict())
        outputs = {f"{k}/output": own(b.inputs[0]).detach().numpy() for k, b in enumerate(data)}
        network = network_of(name, own, data[0].inputs[0], [SMALLER, len(data[0].inputs[0])])
        return Evaluated(network, outputs)

    made = OnGpu(step, names, machine(), SEED)
    return made, step_network(step, made, data, name, ("x",), names, evaluated)


@cache
def project(name: str) -> Path:
    """The folder of a project, built."""
    with one_run.one_at_a_time(one_run.own_folder(), f"emitted-step-{name}") as folder:
        if not (folder / "done").exists():
            with step_of(name) as step:
                made, network = written(name, step)
                made.write(network, folder / "project")
            build(folder / "project")
            (folder / "done").touch()
        return folder / "project"
