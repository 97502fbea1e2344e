"""The state of a training step as a worker saves it, by names of the worker protocol, and back."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from golow.levels.called.training.training_step import TrainingStep
from golow.levels.torch.optimizers import NAMES
from golow.records.workload import Optimizer

WEIGHTS = ("parameter", "buffer")
STEPS = "steps/steps"
SCALE, GOOD = "scaler/scale", "scaler/good_steps"
TRACKER = "_growth_tracker"


class SavedState:
    """names: of the module's parameters, in their order. every_name: with further names of those
    that have several."""

    def __init__(
        self, optimizer: Optimizer, names: Sequence[str], every_name: Sequence[str]
    ) -> None:
        self._optimizer, self._names, self._parameters = optimizer, names, frozenset(every_name)

    def weights(self, step: TrainingStep) -> Iterator[tuple[str, Tensor]]:
        """Parameters and buffers, on the CPU."""
        for name, tensor in step.state_dict().items():
            kind = "parameter" if name in self._parameters else "buffer"
            yield f"{kind}/{name}", _copy(tensor)

    def kept(self, step: TrainingStep) -> Iterator[tuple[str, Tensor]]:
        """State that the optimizer keeps; ``steps/steps`` where its update depends on their
        number."""
        named, steps = NAMES[self._optimizer.name], None
        for index, entry in step.optimizer_state()["state"].items():
            for kind in self._optimizer.keeps:
                yield f"{kind}/{self._names[index]}", _copy(entry[named[kind]])
            steps = entry.get("step")
        if self._optimizer.counts_steps and steps is not None:
            yield STEPS, _copy(steps)

    def scaler(self, step: TrainingStep) -> Iterator[tuple[str, Tensor]]:
        """The loss scale; nothing if there is none."""
        if found := step.scaler_state():
            yield SCALE, torch.tensor([found["scale"]], dtype=torch.float32)
            yield GOOD, torch.tensor([found[TRACKER]], dtype=torch.int32)

    def load(
        self, step: TrainingStep, state: Mapping[str, Tensor], scaler: Mapping[str, Any]
    ) -> None:
        """Let a step continue from a saved state; of the optimizer, what is missing is zero.
        scaler: for states without a loss scale."""
        named = {name.partition("/"): tensor for name, tensor in state.items()}
        weights = {name: item for (kind, _, name), item in named.items() if kind in WEIGHTS}
        if SCALE in state:
            own = {"scale": float(state[SCALE]), TRACKER: int(state[GOOD])}
            scaler = {**step.scaler_state(), **own}
        groups = step.optimizer_state()["param_groups"]
        optimizer = {"state": dict(self._entries(state)), "param_groups": groups}
        step.load_state_dict(weights, optimizer, scaler)

    def _entries(self, state: Mapping[str, Tensor]) -> Iterator[tuple[int, dict[str, Tensor]]]:
        named, steps = NAMES[self._optimizer.name], state.get(STEPS)
        for index, name in enumerate(self._names):
            found = {
                named[kind]: state[f"{kind}/{name}"]
                for kind in self._optimizer.keeps
                if f"{kind}/{name}" in state
            }
            if steps is not None:
                found["step"] = steps
            if found:
                yield index, found


def _copy(tensor: Tensor) -> Tensor:
    return tensor.detach().to("cpu", memory_format=torch.contiguous_format, copy=True)
