"""`onednn` as the device of a training step."""

from __future__ import annotations

import ctypes
import socket
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from golow.levels.called.new_tensors import allocator
from golow.levels.called.one_size import OneSize
from golow.levels.called.processor import Processor
from golow.levels.called.training.step_target import (
    Key,
    Loss,
    Scale,
    Weights,
    is_updating,
    rate_target,
)
from golow.levels.direct.bundle_arrays import Batch
from golow.levels.direct.onednn import level as onednn
from golow.levels.direct.onednn.run.mutable_state import MutableState
from golow.levels.direct.onednn.run.training_plan import TrainingPlan, TrainingPlans
from golow.levels.direct.onednn.steps.built_plan import Built
from golow.levels.direct.ranks.meeting import Meeting
from golow.lower.ir.graph import Graph
from golow.lower.plan.plan import Plan
from golow.records.errors import GolowError

LOSS_BYTES = 4


class OnProcessor:
    """Plans of `onednn`. seed: of random layers; cache: golow's; tune: whether layouts are chosen
    by measuring. meeting: of the ranks that train together."""

    scaled = False

    def __init__(
        self,
        target: Processor,
        seed: int,
        cache: Path,
        tune: bool,
        meeting: Meeting | None = None,
    ) -> None:
        self.target, self._cache, self._tune = target, cache, tune
        target.building()
        if meeting is not None:
            _require_one_host(meeting)
        self._plans = TrainingPlans(cache / target.level, seed, meeting)
        self.state = ProcessorState(self._plans.state)

    @property
    def iteration_bytes(self) -> int:
        """Bytes that a step needs besides the state."""
        return self._plans.iteration_bytes

    def captured(self, module: nn.Module, loss: Loss) -> tuple[nn.Module, Loss]:
        """Both as they are."""
        return module, loss

    def add(
        self,
        graph: Graph,
        constants: Mapping[str, Tensor],
        weights: Weights,
        inputs: Sequence[Tensor],
        targets: Sequence[Tensor],
    ) -> ProcessorPlan:
        """Build the plan of a lowered graph."""
        target = self.target
        arrays = {"input": inputs, "target": targets}
        example: Batch = {
            (kind, str(k)): item.contiguous().numpy()
            for kind, tensors in arrays.items()
            for k, item in enumerate(tensors)
        }
        folder = onednn.write_graph(graph, target.threads, self._cache)
        state = weights.read() if self._tune else {}  # of steps that choose layouts
        read = OneSize(graph, constants).reading(state, target.array)
        plan = self._plans.add(graph, read, folder, example, self._tune, target.threads)
        state_of = self._plans.state if is_updating(graph) else None
        return ProcessorPlan(plan, state_of)

    def wait(self) -> None:
        """Give this thread the step's number of threads; every step has ended."""
        self.target.building()

    def set_rate(self, group: int, rate: float) -> None:
        """Set the learning rate of a group."""
        self._plans.state.set_rate(rate, rate_target(group))

    def set_dropout(self, active: bool) -> None:
        """Switch random layers on or off."""
        self._plans.switches.dropout = active

    def close(self) -> None:
        """Nothing waits for other ranks."""

    def scale(self) -> Scale | None:
        """There is none in float32."""
        return None

    def set_scale(self, scale: Scale) -> None:
        """There is none to set."""


def _require_one_host(meeting: Meeting) -> None:
    """Raise `GolowError` for ranks that share no memory."""
    hosts = dict.fromkeys(meeting.everyone("host", socket.gethostname().encode()))
    if len(hosts) > 1:
        raise GolowError(
            f"the ranks are on {len(hosts)} hosts, and those of onednn exchange gradients in "
            "shared memory",
            "start all ranks on one host, or train on GPUs.",
        )


class ProcessorPlan:
    """The plan of a batch size. state: whose sums of gradients it forgets at its end."""

    def __init__(self, plan: TrainingPlan, state: MutableState | None) -> None:
        self.plan: Plan = plan.plan
        self._run = plan
        self._allocate = allocator(torch.device("cpu"))
        self._state = state if state is not None and state.keys("gradient_sum") else None

    def __call__(self, inputs: Sequence[int], targets: Sequence[int]) -> Tensor:
        """Run the step on a batch at these addresses; returns its loss."""
        self._run(inputs, targets)
        self._forget_sums()
        loss = self._allocate((), (), torch.float32)
        ctypes.memmove(loss.data_ptr(), self._run.loss_address, LOSS_BYTES)
        return loss

    def observed(self, inputs: Sequence[int], targets: Sequence[int]) -> dict[Key, np.ndarray]:
        """Run the same step by step; returns loss, outputs and gradients."""
        found = self._run.observed(inputs, targets)
        self._forget_sums()
        return found

    def _forget_sums(self) -> None:
        if self._state is not None:
            self._state.clear(["gradient_sum"])

    @property
    def built(self) -> Built:
        """The plan with what executes it."""
        return self._run.built

    def constant(self, kind: str, target: str) -> np.ndarray:
        """A constant of the graph."""
        return self._run.constant(kind, target)

    def reload(self, frozen: Mapping[str, Tensor]) -> None:
        """Nothing: plans read every weight in the state."""


class ProcessorState:
    """The state's arrays as tensors."""

    def __init__(self, state: MutableState) -> None:
        self._state = state
        self.has, self.keys, self.shape = state.has, state.keys, state.shape

    @property
    def bytes(self) -> int:
        """Bytes of all that it holds."""
        return self._state.bytes

    def read(self, key: Key) -> Tensor:
        """A copy, in PyTorch's order."""
        return torch.from_numpy(self._state.read(key))

    def write(self, key: Key, tensor: Tensor) -> None:
        """Give it the content of a tensor."""
        self._state.write(key, tensor.detach().cpu().contiguous().numpy())

    def clear(self, kinds: Iterable[str]) -> None:
        """Set everything of these kinds to zero."""
        self._state.clear(kinds)

    def settle(self) -> None:
        """It is there."""
