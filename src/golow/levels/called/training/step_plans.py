"""The plans of a step, one or two for each batch size, over one state."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from golow.levels.called.one_size import OneSize
from golow.levels.called.processor import Processor
from golow.levels.called.sizes import in_words
from golow.levels.called.target import explained, roomy
from golow.levels.called.training.module_weights import ModuleWeights
from golow.levels.called.training.optimizer_settings import Settings
from golow.levels.called.training.step_inputs import StepInputs
from golow.levels.direct.bundle_arrays import Batch
from golow.levels.direct.onednn import level as onednn
from golow.levels.direct.onednn.run.training_plan import TrainingPlan, TrainingPlans
from golow.lower.ir.graph import Graph
from golow.observer import Observer


class Network(NamedTuple):
    """What is trained. module: takes inputs by position; its weights hold nothing. loss: of the
    module's output and the targets."""

    module: nn.Module
    loss: Callable[..., Tensor]
    settings: Settings
    every: int
    tune: bool


class OneBatch(NamedTuple):
    """The plans of a batch size. adding: only adds gradients up; None if every step updates."""

    updating: TrainingPlan
    adding: TrainingPlan | None


class StepPlans:
    """The plans so far, by batch; others are built when they are asked for."""

    def __init__(
        self,
        network: Network,
        inputs: StepInputs,
        weights: ModuleWeights,
        plans: TrainingPlans,
        target: Processor,
        cache: Path,
    ) -> None:
        self._network, self._inputs, self._weights = network, inputs, weights
        self._plans, self._target, self._cache = plans, target, cache
        self._built: dict[int, OneBatch] = {}

    def of(self, rows: int, observer: Observer) -> OneBatch:
        """The plans of a batch of that many samples."""
        if rows not in self._built:
            self._built[rows] = self._build(rows, observer)
            self._inputs.learn(rows)
        return self._built[rows]

    @torch.inference_mode(False)
    @torch.enable_grad()
    def _build(self, rows: int, observer: Observer) -> OneBatch:
        from golow.levels.called.training.lowering import lowered_step

        network, target, number = self._network, self._target, self._inputs.number
        observer.stage(f"capturing the step of {in_words((rows, 0))}")
        sample = self._inputs.sample((rows, 0))
        lowered = lowered_step(
            network.module,
            network.loss,
            sample[:number],
            sample[number:],
            network.settings,
            network.every,
            target,
        )
        observer.stage(f"building the step of {in_words((rows, 0))}")
        target.building()
        updating = self._plan(lowered.updating, lowered.constants, sample)
        adding = None
        if lowered.adding is not None:
            adding = self._plan(lowered.adding, lowered.constants, sample)
        self._weights.adopt()
        target.done()
        return OneBatch(updating, adding)

    def _plan(self, graph: Graph, constants: Any, sample: tuple[Tensor, ...]) -> TrainingPlan:
        target, number = self._target, self._inputs.number
        arrays = [item.contiguous().numpy() for item in sample]
        example: Batch = {("input", str(k)): item for k, item in enumerate(arrays[:number])}
        example |= {("target", str(k)): item for k, item in enumerate(arrays[number:])}
        folder = onednn.write_graph(graph, target.threads, self._cache)
        state = self._weights.read() if self._network.tune else {}  # of steps that choose layouts
        read = OneSize(graph, constants).reading(state, target.array)
        with explained(target.level), roomy():
            return self._plans.add(graph, read, folder, example, self._network.tune)
