"""Device of a training step: the plans of its graphs, and the memory that they change."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple, Protocol

import numpy as np
from torch import Tensor, nn

from golow.levels.called.target import Target
from golow.lower.ir.graph import Graph
from golow.lower.plan.plan import Plan

Key = tuple[str, str]  # kind and target
Loss = Callable[..., Tensor]


class Scale(NamedTuple):
    """Scale of the loss. value: now. good: steps since it changed; -1 for one that stays as it
    is."""

    value: float
    good: int


class Weights(Protocol):
    """The module's. beside: what no plan changes."""

    @property
    def beside(self) -> Mapping[str, Tensor]:
        """Tensors that no plan changes."""

    def read(self) -> dict[str, Tensor]:
        """All of them, as copies."""


class StepState(Protocol):
    """The memory of what training changes. No step may run while it is read or written."""

    @property
    def bytes(self) -> int:
        """Bytes of all that it holds."""

    def has(self, key: Key) -> bool:
        """True if a plan has it."""

    def keys(self, *kinds: str) -> list[Key]:
        """Keys of the tensors of these kinds."""

    def shape(self, key: Key) -> tuple[int, ...]:
        """Its shape."""

    def read(self, key: Key) -> Tensor:
        """A copy on the step's device."""

    def write(self, key: Key, tensor: Tensor) -> None:
        """Give it the content of a tensor; `settle` follows."""

    def clear(self, kinds: Iterable[str]) -> None:
        """Set everything of these kinds to zero; `settle` follows."""

    def settle(self) -> None:
        """Let the next step read what was written."""


class StepPlan(Protocol):
    """A plan that is ready to run."""

    plan: Plan

    def __call__(self, inputs: Sequence[int], targets: Sequence[int]) -> Tensor:
        """Run the step on a batch at these addresses, or enqueue it. Returns its loss."""

    def observed(self, inputs: Sequence[int], targets: Sequence[int]) -> dict[Key, np.ndarray]:
        """Run the same step by step, when all steps so far have ended; returns loss, outputs and
        gradients."""

    def reload(self, frozen: Mapping[str, Tensor]) -> None:
        """Take weights that no step changes."""


class StepTarget(Protocol):
    """A direct level as `golow.compile_step` uses it. scaled: whether the loss is."""

    scaled: bool

    @property
    def target(self) -> Target:
        """The level as `golow.compile` uses it."""

    @property
    def state(self) -> StepState:
        """State that all plans read and change."""

    @property
    def iteration_bytes(self) -> int:
        """Bytes that a step needs besides the state."""

    def captured(self, module: nn.Module, loss: Loss) -> tuple[nn.Module, Loss]:
        """Module and loss as graphs are captured of them: on the CPU, in float32."""

    def add(
        self,
        graph: Graph,
        constants: Mapping[str, Tensor],
        weights: Weights,
        inputs: Sequence[Tensor],
        targets: Sequence[Tensor],
    ) -> StepPlan:
        """Build the plan of a lowered graph. constants: besides weights. inputs, targets: like
        those of a batch."""

    def wait(self) -> None:
        """Wait for the steps so far, and for pending writes of data that is read next."""

    def set_rate(self, group: int, rate: float) -> None:
        """Set the learning rate of a group of parameters in the next steps."""

    def set_dropout(self, active: bool) -> None:
        """Switch random layers on or off."""

    def close(self) -> None:
        """Disconnect from the other ranks, if any; no plan may run afterwards."""

    def scale(self) -> Scale | None:
        """The loss scale; None if there is none."""

    def set_scale(self, scale: Scale) -> None:
        """Go on with this loss scale."""


def is_updating(graph: Graph) -> bool:
    """True if a training graph updates parameters, instead of only adding gradients up."""
    return any(item.kind == "gradient" for item in graph.outputs)


def rate_target(group: int) -> str:
    """The name of a group's learning rate among a graph's inputs."""
    return str(group) if group else ""
