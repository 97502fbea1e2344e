"""Training steps on the GPU, and their C++ projects, built once for all tests of a run."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import NamedTuple

import torch
from torch import nn

from golow.levels.called.project_building import build_project
from golow.levels.called.training.emission import write_step
from golow.levels.called.training.training_step import TrainingStep
from golow.lower.capture.shared_tensors import first_names
from golow.models.lenet import lenet5
from golow.records.workload import Optimizer, Precision
from golow.workload.batch import Batch
from support import one_run
from support.direct.emitted_steps_on_host import SEED, Dropping
from support.direct.emitted_trainings import SMALLER, Residual, Tied, batches
from support.direct.training_steps import stepped

NAMES = ("lenet5", "residual", "residual_bf16", "residual_fp16", "tied", "dropping")


class Case(NamedTuple):
    """A network in training, its optimizer, batches of two sizes, and the precision."""

    module: nn.Module
    optimizer: Optimizer
    batches: tuple[Batch, ...]
    precision: Precision = "default"


@cache
def case(name: str) -> Case:
    torch.manual_seed(0)
    sgd = Optimizer(learning_rate=0.05, momentum=0.9, weight_decay=1e-3)
    if name == "lenet5":
        return Case(lenet5().train().cuda(), sgd, _on_gpu(batches((1, 28, 28))))
    if name == "tied":
        adamw = Optimizer("adamw", learning_rate=0.01, clip=0.5)
        return Case(Tied().train().cuda(), adamw, _on_gpu(batches((4,), words=True)))
    if name == "dropping":
        return Case(Dropping().train().cuda(), sgd, _on_gpu(batches((4,))))
    found = Case(Residual().train().cuda(), sgd, _on_gpu(batches((3, 12, 12))))
    if name == "residual_bf16":
        return found._replace(precision="bf16")
    return found._replace(precision="fp16") if name == "residual_fp16" else found


def _on_gpu(data: tuple[Batch, ...]) -> tuple[Batch, ...]:
    return tuple(Batch(*(tuple(t.cuda() for t in part) for part in batch)) for batch in data)


def step_of(name: str) -> TrainingStep:
    """A step in Python, whose plans are built in the project's order."""
    module, optimizer, data, precision = case(name)
    example = (data[0].inputs[0], data[0].targets[0])
    return stepped(
        module, optimizer, example, batch=[SMALLER, len(example[0])], precision=precision,
        seed=SEED,
    )  # fmt: skip


@cache
def project(name: str) -> Path:
    """The folder of a project, built."""
    module, optimizer, data, _ = case(name)
    with one_run.one_at_a_time(one_run.own_folder(), f"emitted-step-on-gpu-{name}") as folder:
        if not (folder / "done").exists():
            with step_of(name) as step:
                write_step(
                    step, data, folder / "project", name, optimizer, ("x",), first_names(module),
                    SEED,
                )  # fmt: skip
            build_project(folder / "project", "cudnn")
            (folder / "done").touch()
        return folder / "project"
