"""A compiled training step as a C++ project."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, cast

import numpy as np
import torch
from torch import Tensor

from golow.levels.called.called_module import CalledModule
from golow.levels.called.emission import array_of, end_of, input_names, network_of, require_gpu
from golow.levels.called.training.saved_state import SavedState
from golow.levels.called.training.step_building import built_step
from golow.levels.called.training.training_step import TrainingStep
from golow.levels.called.training.wanted_step import WantedStep
from golow.levels.called.training.written_step import Names, OnGpu, OnProcessor, WrittenStep
from golow.levels.direct.emit.network import End, Network
from golow.levels.direct.emit.training import TrainingNetwork
from golow.lower.capture.module_outputs import leaves_of
from golow.lower.capture.shared_tensors import first_names
from golow.observer import Silent
from golow.records.errors import GolowError
from golow.records.workload import Optimizer
from golow.storage.files import writing
from golow.workload.batch import Batch
from golow.workload.prepare import Prepared


class Evaluated(NamedTuple):
    """The network in inference, and its outputs for each batch."""

    network: Network[Any]
    outputs: Mapping[str, np.ndarray]


def emit_training(prepared: Prepared, level: str, sizes: Sequence[int], folder: Path) -> list[Path]:
    """Write the plans of a training step with its weights, the workload's batches, and the state
    that the plan makes of them; return the files. level: onednn, or cudnn for the first GPU. sizes:
    batches; empty for that of the workload alone. Raises `GolowError`, before anything is written,
    for what cannot be run or written, and for a folder that holds something else."""
    workload = prepared.workload
    if level == "onednn" and workload.device != "cpu":
        raise GolowError("onednn runs on a CPU", "leave out --device, or use --level cudnn.")
    wanted = WantedStep(
        workload.optimizer, list(sizes) or None, seed=workload.seed, precision=workload.precision,
        threads=workload.threads if level == "onednn" else None,
    )  # fmt: skip
    module, batches, names = prepared.module, prepared.batches, first_names(prepared.module)
    if level == "cudnn":
        require_gpu()
        module, batches = module.cuda(), tuple(map(_on_gpu, batches))
    example = (batches[0].inputs, *batches[0].targets)
    with (
        built_step(module, prepared.loss, example, wanted, Silent()) as step,
        writing(folder, "free some space, or name another folder with --out."),
    ):
        keywords, optimizer = workload.source.keywords, workload.optimizer
        return write_step(
            step, batches, folder, workload.model, optimizer, keywords, names, workload.seed
        )


def write_step(
    step: TrainingStep,
    batches: Sequence[Batch],
    folder: Path,
    title: str,
    optimizer: Optimizer,
    names: Sequence[str],
    first: Mapping[str, str],
    seed: int = 0,
) -> list[Path]:
    """Write a step and train it on these batches; return the files. names: of the inputs, by
    default those of the forward pass. first: maps each name of a weight to its first one. seed: of
    random layers."""
    inputs = step.parts.inputs
    names = input_names(names or inputs.names, inputs.number)
    called = Names(optimizer, first)

    def evaluated() -> Evaluated:
        return _evaluated(step, batches, title, names)

    written: WrittenStep
    if step.parts.device.target.level == "cudnn":
        from golow.levels.direct.cudnn.emit.machine import machine_of

        written = OnGpu(
            step, called, machine_of(cast("Any", step.parts.device.target).engines), seed
        )
    else:
        written = OnProcessor(step, called)
    return written.write(
        step_network(step, written, batches, title, names, called, evaluated), folder
    )


def step_network(
    step: TrainingStep,
    written: WrittenStep,
    batches: Sequence[Batch],
    title: str,
    names: Sequence[str],
    called: Names,
    evaluated: Callable[[], Evaluated],
) -> TrainingNetwork[Any]:
    """Describe a step, and train it on these batches. called: names of the state. evaluated: the
    network in inference, with the weights after the last batch."""
    inputs, optimizer = step.parts.inputs, called.optimizer
    targets = len(inputs.forms) - inputs.number
    wanted = ["target"] if targets == 1 else [f"target_{k}" for k in range(targets)]
    ends = [
        end_of(name, form.dtype, (-1, *form.shape[1:]) if form.batched else form.shape)
        for name, form in zip((*names, *wanted), inputs.forms, strict=True)
    ]
    weights = {name: array_of(item) for name, item in step.state_dict().items()}
    expected = _expected(step, batches, called)
    evaluation = evaluated()
    return TrainingNetwork(
        title=title,
        plans=written.plans,
        evaluation=evaluation.network,
        inputs=tuple(ends[: inputs.number]),
        targets=tuple(ends[inputs.number :]),
        state=written.state,
        beside=tuple(called.beside(weights, written.state)),
        rate=float(np.float32(optimizer.learning_rate)),
        optimizer=str(optimizer),
        threads=step.parts.device.target.threads,
        weights=weights,
        example={
            f"{number}/{end.name}": array_of(tensor)
            for number, batch in enumerate(batches)
            for end, tensor in zip(ends, (*batch.inputs, *batch.targets), strict=True)
        },
        expected={**expected, **evaluation.outputs},
    )


def _on_gpu(batch: Batch) -> Batch:
    return Batch(*(tuple(item.cuda() for item in part) for part in batch))


def _expected(step: TrainingStep, batches: Sequence[Batch], called: Names) -> dict[str, np.ndarray]:
    """The losses of a step on each batch, and the state after the last one."""
    losses = [
        step(batch.inputs if len(batch.inputs) > 1 else batch.inputs[0], *batch.targets)
        for batch in batches
    ]
    parameters = [name for name, own in called.first.items() if name == own]
    saved = SavedState(called.optimizer, parameters, ())
    kept: dict[str, Any] = {**dict(saved.kept(step)), **dict(saved.scaler(step))}
    found: dict[str, Tensor] = {**step.state_dict(), **kept, "loss": torch.stack(losses)}
    return {name: array_of(item) for name, item in found.items()}


def _evaluated(
    step: TrainingStep, batches: Sequence[Batch], title: str, names: Sequence[str]
) -> Evaluated:
    with step.parts.evaluation.built(sorted(step.plans), batches[0].inputs, {}) as made:
        network = network_of(made, title, names)
        outputs = dict(_outputs(made, network.outputs, batches))
    if made.target.level == "cudnn":
        from golow.levels.direct.cudnn.emit.machine import written_network

        network = written_network(network)
    return Evaluated(network, outputs)


def _outputs(
    made: CalledModule, ends: Sequence[End], batches: Sequence[Batch]
) -> Iterator[tuple[str, np.ndarray]]:
    for number, batch in enumerate(batches):
        copies = [item.clone() for item in batch.inputs]  # the module may change them
        for end, output in zip(ends, leaves_of(made(*copies)), strict=True):
            yield f"{number}/{end.name}", array_of(output)
