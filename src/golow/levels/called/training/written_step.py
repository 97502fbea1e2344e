"""The plans of a training step and the memory of its state, as a level writes them in C++."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, cast

import numpy as np
import torch

from golow.levels.called.emission import end_of
from golow.levels.called.training.on_processor import ProcessorPlan
from golow.levels.called.training.saved_state import GOOD, SCALE, STEPS, WEIGHTS
from golow.levels.called.training.step_target import Scale
from golow.levels.called.training.training_step import TrainingStep
from golow.levels.direct.emit.network import End, Sized
from golow.levels.direct.emit.training import RATE, SCRATCH, Held, TrainingNetwork
from golow.records.workload import Optimizer

if TYPE_CHECKING:
    from golow.levels.called.training.on_gpu import GpuPlan
    from golow.levels.direct.cudnn.emit.project import Machine
    from golow.levels.direct.cudnn.emit.training_source import Stored
    from golow.levels.direct.cudnn.steps.built_plan import Cell

Key = tuple[str, str]


class Names(NamedTuple):
    """Names of the state in files. optimizer: what it keeps is saved. first: maps each name of a
    weight to its first one."""

    optimizer: Optimizer
    first: Mapping[str, str]

    def held(
        self, key: Key, dtype: str, shape: Sequence[int], size: int, place: object = ""
    ) -> Held:
        """A tensor of the state. size: in bytes, in memory; place: in C++."""
        kind, target = key
        kept = (*WEIGHTS, *self.optimizer.keeps, STEPS.partition("/")[0], RATE)
        name = target if kind in WEIGHTS else f"{kind}/{target}"
        end = end_of(name, getattr(torch, dtype), tuple(shape))
        if kind in WEIGHTS:
            end = end._replace(also=self._others(target))
        return Held(kind if kind in kept else SCRATCH, end, size, str(place))

    def beside(self, weights: Mapping[str, np.ndarray], state: Sequence[Held]) -> Iterator[End]:
        """Weights that are not part of the state."""
        there = {held.end.name for held in state if held.kind in WEIGHTS}
        for name, array in weights.items():
            if self.first.get(name, name) == name and name not in there:
                end = end_of(name, getattr(torch, str(array.dtype)), array.shape)
                yield end._replace(also=self._others(name))

    def _others(self, name: str) -> tuple[str, ...]:
        groups: dict[str, list[str]] = defaultdict(list)
        for other, own in self.first.items():
            if other != own:
                groups[own].append(other)
        return tuple(groups[name])


class WrittenStep(Protocol):
    """A step as a level writes it. plans: by batch, the largest last."""

    @property
    def plans(self) -> Mapping[int, Sized[Any]]:
        """Its plans, by batch, the largest last."""

    @property
    def state(self) -> tuple[Held, ...]:
        """The tensors that training changes."""

    def write(self, network: TrainingNetwork[Any], folder: Path) -> list[Path]:
        """Write the project; return the files. Raises `GolowError`, before anything is written, for
        a step that has no form in C++ and for a folder that holds something else."""


class OnProcessor:
    """A step that calls oneDNN."""

    def __init__(self, step: TrainingStep, names: Names) -> None:
        from golow.levels.direct.onednn.run.mutable_state import KINDS
        from golow.levels.direct.onednn.steps.built_plan import Built

        own = {
            rows: cast("ProcessorPlan", one.updating) for rows, one in sorted(step.plans.items())
        }
        self.plans = {rows: Sized(plan.built, plan.constant) for rows, plan in own.items()}
        keys: dict[Key, Built] = {}
        for plan in own.values():
            for key in plan.built.inputs:
                if key[0] in KINDS:
                    keys.setdefault(key, plan.built)
        self._numbers = {key: number for number, key in enumerate(keys)}
        found = []
        for key, built in keys.items():
            tensor = built.inputs[key]
            size = built.plan.buffers[tensor.buffer].bytes
            found.append(names.held(key, tensor.dtype, tensor.shape, size, size))
        self.state = tuple(found)

    def write(self, network: TrainingNetwork[Any], folder: Path) -> list[Path]:
        """As in `WrittenStep`."""
        from golow.levels.direct.onednn.emit.training_project import write_training

        return write_training(network, self._numbers, folder)


class OnGpu:
    """A step that calls cuDNN and cuBLASLt. machine: the GPU of its plans. seed: of dropout."""

    def __init__(self, step: TrainingStep, names: Names, machine: Machine, seed: int) -> None:
        from golow.levels.direct.cudnn.emit.plan_source import Written
        from golow.levels.direct.cudnn.emit.training_source import StateMemory
        from golow.levels.direct.cudnn.steps.built_plan import Cell

        self._machine, scale = machine, step.parts.device.scale() or Scale(0.0, 0)
        own = {rows: cast("GpuPlan", one.updating) for rows, one in step.plans.items()}
        self.plans = {
            rows: Sized(Written(plan.built, plan.sources, plan.constant, ()), plan.constant)
            for rows, plan in sorted(own.items())
        }
        self._memory = StateMemory([plan.built for plan in own.values()])
        found: list[Held] = []
        for key, stored in self._memory.stored.items():
            if isinstance(key, Cell):
                found += _cell(key, stored, seed, scale)
                continue
            tensor = stored.tensor
            size = tensor.layout.bytes(tensor.shape)
            found.append(names.held(key, tensor.dtype, tensor.shape, size, _place(stored)))
        self.state = tuple(found)

    def write(self, network: TrainingNetwork[Any], folder: Path) -> list[Path]:
        """As in `WrittenStep`."""
        from golow.levels.direct.cudnn.emit.training_project import write_training

        return write_training(network, self._memory, self._machine, folder)


def _place(stored: Stored) -> str:
    from golow.levels.direct.cudnn.emit.contents import storage

    return f"{stored.memory}, {stored.offset}, {storage(stored.tensor)}, 0"


def _cell(cell: Cell, stored: Stored, seed: int, scale: Scale) -> Iterator[Held]:
    """The numbers of a cell, as `SCALER` and `CONTROL` have them. scale: that of the loss at
    first."""

    def number(kind: str, name: str, offset: int, dtype: str, first: float) -> Held:
        place = f"{{Type::{dtype}, {{}}, {{}}, 1}}, {first!r}"
        end = end_of(name, getattr(torch, dtype), ())
        return Held(kind, end, 4, f"{stored.memory}, {stored.offset + offset}, {place}")

    if cell.kind == "loss_scale":
        yield number("scaler", SCALE, 0, "float32", scale.value)
        yield number("scaler", GOOD, 4, "int32", scale.good)
    else:
        yield number("dropout", f"{cell}: seed", 0, "int32", seed)
        yield number("dropout", f"{cell}: probability", 8, "float32", cell.probability)
