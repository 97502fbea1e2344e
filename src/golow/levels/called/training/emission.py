"""A compiled training step as a C++ project."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor

from golow.levels.called.emission import array_of, end_of, input_names
from golow.levels.called.training.on_processor import ProcessorPlan
from golow.levels.called.training.saved_state import STEPS, WEIGHTS, SavedState
from golow.levels.called.training.step_building import built_step
from golow.levels.called.training.training_step import TrainingStep
from golow.levels.called.training.wanted_step import WantedStep
from golow.levels.direct.emit.network import End, Sized
from golow.levels.direct.emit.training import RATE, SCRATCH, Held, TrainingNetwork
from golow.levels.direct.onednn.emit.training_project import write_training
from golow.levels.direct.onednn.run.mutable_state import KINDS
from golow.levels.direct.onednn.steps.built_plan import Built
from golow.lower.capture.shared_tensors import first_names
from golow.observer import Silent
from golow.records.errors import GolowError
from golow.records.workload import Optimizer
from golow.storage.files import writing
from golow.workload.batch import Batch
from golow.workload.prepare import Prepared

Key = tuple[str, str]


def emit_training(prepared: Prepared, sizes: Sequence[int], folder: Path) -> list[Path]:
    """Write the plans of a training step with its weights, the workload's batches, and the state
    that the plan makes of them; return the files. sizes: batches; empty for that of the workload
    alone. Raises `GolowError`, before anything is written, for what cannot be run or written, and
    for a folder that holds something else."""
    workload = prepared.workload
    if workload.device != "cpu":
        raise GolowError("onednn runs on a CPU", "leave out --device.")
    wanted = WantedStep(
        workload.optimizer, list(sizes) or None, seed=workload.seed, precision=workload.precision,
        threads=workload.threads,
    )  # fmt: skip
    first = prepared.batches[0]
    example = (first.inputs, *first.targets)
    with (
        built_step(prepared.module, prepared.loss, example, wanted, Silent()) as step,
        writing(folder, "free some space, or name another folder with --out."),
    ):
        keywords, names = workload.source.keywords, first_names(prepared.module)
        return write_step(
            step, prepared.batches, folder, workload.model, workload.optimizer, keywords, names
        )


def write_step(
    step: TrainingStep,
    batches: Sequence[Batch],
    folder: Path,
    title: str,
    optimizer: Optimizer,
    names: Sequence[str],
    first: Mapping[str, str],
) -> list[Path]:
    """Write a step and train it on these batches; return the files. names: of the inputs, by
    default those of the forward pass. first: maps each name of a weight to its first one."""
    inputs = step.parts.inputs
    names = input_names(names or inputs.names, inputs.number)
    targets = len(inputs.forms) - inputs.number
    called = ["target"] if targets == 1 else [f"target_{k}" for k in range(targets)]
    ends = [
        end_of(name, form.dtype, (-1, *form.shape[1:]) if form.batched else form.shape)
        for name, form in zip((*names, *called), inputs.forms, strict=True)
    ]
    plans = {rows: cast("ProcessorPlan", one.updating) for rows, one in sorted(step.plans.items())}
    weights = {name: array_of(item) for name, item in step.state_dict().items()}
    keys = _keys([plan.built for plan in plans.values()])
    network = TrainingNetwork(
        title=title,
        plans={rows: Sized(plan.built, plan.constant) for rows, plan in plans.items()},
        inputs=tuple(ends[: inputs.number]),
        targets=tuple(ends[inputs.number :]),
        state=tuple(_held(key, built, optimizer, first) for key, built in keys.items()),
        beside=tuple(_beside(weights, keys, first)),
        rate=float(np.float32(optimizer.learning_rate)),
        optimizer=str(optimizer),
        threads=step.parts.device.target.threads,
        weights=weights,
        example={
            f"{number}/{end.name}": array_of(tensor)
            for number, batch in enumerate(batches)
            for end, tensor in zip(ends, (*batch.inputs, *batch.targets), strict=True)
        },
        expected=_expected(step, batches, optimizer, first),
    )
    return write_training(network, {key: number for number, key in enumerate(keys)}, folder)


def _keys(plans: Sequence[Built]) -> dict[Key, Built]:
    """Tensors that training changes, each with a plan that has it."""
    found: dict[Key, Built] = {}
    for built in plans:
        for key in built.inputs:
            if key[0] in KINDS:
                found.setdefault(key, built)
    return found


def _held(key: Key, built: Built, optimizer: Optimizer, first: Mapping[str, str]) -> Held:
    kind, target = key
    tensor = built.inputs[key]
    saved = kind in (*WEIGHTS, *optimizer.keeps, STEPS.partition("/")[0], RATE)
    name = target if kind in WEIGHTS else f"{kind}/{target}"
    end = end_of(name, getattr(torch, tensor.dtype), tensor.shape)
    if kind in WEIGHTS:
        end = end._replace(also=_others(target, first))
    return Held(kind if saved else SCRATCH, end, built.plan.buffers[tensor.buffer].bytes)


def _beside(
    weights: Mapping[str, np.ndarray], keys: Mapping[Key, Built], first: Mapping[str, str]
) -> Iterator[End]:
    """Weights that no plan reads."""
    read = {target for kind, target in keys if kind in WEIGHTS}
    for name, array in weights.items():
        if first.get(name, name) == name and name not in read:
            end = end_of(name, getattr(torch, str(array.dtype)), array.shape)
            yield end._replace(also=_others(name, first))


def _others(name: str, first: Mapping[str, str]) -> tuple[str, ...]:
    groups: dict[str, list[str]] = defaultdict(list)
    for other, own in first.items():
        if other != own:
            groups[own].append(other)
    return tuple(groups[name])


def _expected(
    step: TrainingStep, batches: Sequence[Batch], optimizer: Optimizer, first: Mapping[str, str]
) -> dict[str, np.ndarray]:
    """The losses of a step on each batch, and the state behind the last one."""
    losses = [
        step(batch.inputs if len(batch.inputs) > 1 else batch.inputs[0], *batch.targets)
        for batch in batches
    ]
    parameters = [name for name, own in first.items() if name == own]
    kept: dict[str, Any] = dict(SavedState(optimizer, parameters, ()).kept(step))
    found: dict[str, Tensor] = {**step.state_dict(), **kept, "loss": torch.stack(losses)}
    return {name: array_of(item) for name, item in found.items()}
