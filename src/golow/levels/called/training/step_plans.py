"""The plans of a step, one or two for each batch size, over one state."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from golow.levels.called.sizes import in_words
from golow.levels.called.target import explained, roomy
from golow.levels.called.training.module_weights import ModuleWeights
from golow.levels.called.training.optimizer_settings import Settings
from golow.levels.called.training.step_inputs import StepInputs
from golow.levels.called.training.step_target import StepPlan, StepTarget
from golow.lower.ir.graph import Graph
from golow.observer import Observer


class Network(NamedTuple):
    """Network to train, as graphs are captured of it. module: takes inputs by position; its weights
    hold nothing. loss: of the module's output and the targets. ranks: that train together."""

    module: nn.Module
    loss: Callable[..., Tensor]
    settings: Settings
    every: int
    ranks: int = 1


class OneBatch(NamedTuple):
    """The plans of a batch size. adding: only adds gradients up; None if every step updates."""

    updating: StepPlan
    adding: StepPlan | None


class StepPlans:
    """The plans so far, by batch; others are built when they are requested."""

    def __init__(
        self,
        network: Network,
        inputs: StepInputs,
        weights: ModuleWeights,
        device: StepTarget,
    ) -> None:
        self._network, self._inputs, self._weights = network, inputs, weights
        self._device = device
        self._built: dict[int, OneBatch] = {}

    def of(self, rows: int, observer: Observer) -> OneBatch:
        """The plans of a batch of that many samples."""
        if rows not in self._built:
            self._built[rows] = self._build(rows, observer)
            self._inputs.learn(rows)
        return self._built[rows]

    def reload(self) -> None:
        """Let all plans read again what none of them changes."""
        for one in self._built.values():
            for plan in filter(None, one):
                plan.reload(self._weights.beside)

    @torch.inference_mode(False)
    @torch.enable_grad()
    def _build(self, rows: int, observer: Observer) -> OneBatch:
        from golow.levels.called.training.lowering import lowered_step

        network, number, target = self._network, self._inputs.number, self._device.target
        observer.stage(f"capturing the step of {in_words((rows, 0))}")
        sample = self._inputs.sample((rows, 0))
        captured = target.captured_with(sample)
        lowered = lowered_step(
            network.module,
            network.loss,
            captured[:number],
            captured[number:],
            network.settings,
            network.every,
            target,
            network.ranks,
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

    def _plan(self, graph: Graph, constants: Any, sample: tuple[Tensor, ...]) -> StepPlan:
        device, number = self._device, self._inputs.number
        with explained(device.target.level), roomy():
            return device.add(graph, constants, self._weights, sample[:number], sample[number:])
