"""`cudnn` as the device of a training step."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn

from golow.levels.called.float32_copy import on_cpu, tensors_of
from golow.levels.called.gpu import OneGpu, batch_bytes, type_name
from golow.levels.called.one_size import OneSize
from golow.levels.called.training.step_target import Key, Loss, Scale, Weights, rate_target
from golow.lower.ir.graph import Graph, GraphInput
from golow.lower.plan.plan import Plan
from golow.records.errors import GolowError

if TYPE_CHECKING:
    from golow.levels.direct.cudnn.bindings.device import Gpu
    from golow.levels.direct.cudnn.run.ranks import Ranks
    from golow.levels.direct.cudnn.run.training_plan import TrainingPlan, TrainingPlans
    from golow.levels.direct.cudnn.run.training_state import TrainingState
    from golow.levels.direct.cudnn.steps.built_plan import Built
    from golow.levels.direct.ranks.meeting import Meeting

FIRST_SCALE = 65536.0  # torch.amp.GradScaler's own


class OnGpu:
    """Plans of `cudnn`, each one CUDA graph on torch's current stream. seed: of random layers;
    cache: golow's; tune: whether engines are chosen by timing them. scale: of the loss in float16;
    None for one that follows what overflows. meeting: of the ranks that train together."""

    def __init__(
        self,
        target: OneGpu,
        seed: int,
        cache: Path,
        tune: bool,
        scale: float | None,
        meeting: Meeting | None = None,
    ) -> None:
        self.target, self.scaled = target, target.precision == "fp16"
        if scale is not None and not self.scaled:
            raise GolowError(
                f"only a loss in float16 is scaled, and this step computes in {target.precision}",
                'leave loss_scale= out, or use precision="fp16".',
            )
        self._seed, self._cache, self._tune, self._meeting = seed, cache, tune, meeting
        self._first = Scale(FIRST_SCALE, 0) if scale is None else Scale(scale, -1)

    @cached_property
    def _plans(self) -> TrainingPlans:
        from golow.levels.direct.cudnn.run import training_plan

        target = self.target
        engines = target.engines_for(self._cache, self._tune)
        scale = training_plan.Scale(*self._first)
        return training_plan.TrainingPlans(
            engines,
            target.precision,
            self._seed,
            scale,
            target.current_stream,
            None if self._meeting is None else self.exchange(self._meeting, engines.gpu),
        )

    def exchange(self, meeting: Meeting, gpu: Gpu) -> Ranks:
        """Return the ranks, which exchange gradients by NCCL."""
        from golow.levels.direct.cudnn.bindings.nccl import Communicator

        return Communicator(meeting, gpu)

    def close(self) -> None:
        """End the exchange with other ranks, together with them."""
        if self._meeting is not None:
            self._plans.close()

    @cached_property
    def state(self) -> GpuState:
        """State that all plans read and change."""
        return GpuState(self._plans.state, self.target)

    @property
    def iteration_bytes(self) -> int:
        """Bytes that a step needs besides the state."""
        return self._plans.iteration_bytes

    def captured(self, module: nn.Module, loss: Loss) -> tuple[nn.Module, Loss]:
        """Copies on the CPU: weights without content, everything else with it."""
        known: dict[int, Any] = {}
        weights = {id(item) for item in module.state_dict(keep_vars=True).values()}
        for tensor in tensors_of(module):
            if id(tensor) not in weights:
                known[id(tensor)] = on_cpu(tensor)
                continue
            empty = torch.empty(tensor.shape, dtype=tensor.dtype, device="cpu")
            if isinstance(tensor, nn.Parameter):
                empty = nn.Parameter(empty, requires_grad=tensor.requires_grad)
            known[id(tensor)] = empty
        own = copy.deepcopy(loss).cpu() if isinstance(loss, nn.Module) else loss
        return copy.deepcopy(module, known), own

    def add(
        self,
        graph: Graph,
        constants: Mapping[str, Tensor],
        weights: Weights,
        inputs: Sequence[Tensor],
        targets: Sequence[Tensor],
    ) -> GpuPlan:
        """Build the plan of a lowered graph."""
        one = OneSize(graph, constants)
        example = batch_bytes("input", inputs) | batch_bytes("target", targets)
        given = {str(k): type_name(item) for k, item in enumerate(inputs)}
        read = one.reading(weights.beside, self.target.array)
        plan = self._plans.add(graph, read, example, given)
        return GpuPlan(plan, one, self.target)

    def wait(self) -> None:
        """Wait for everything on the GPU."""
        self.target.wait()

    def set_rate(self, group: int, rate: float) -> None:
        """Enqueue the learning rate of a group, after the steps so far."""
        self._plans.set_rate(rate_target(group), rate)

    def set_dropout(self, active: bool) -> None:
        """Switch random layers on or off."""
        self._plans.set_dropout(active)

    def scale(self) -> Scale | None:
        """The loss scale after the steps so far."""
        found = self._plans.scale
        return None if found is None else Scale(found.value, found.good)

    def set_scale(self, scale: Scale) -> None:
        """Go on with this loss scale."""
        from golow.levels.direct.cudnn.run import training_plan

        self._plans.set_scale(training_plan.Scale(*scale))


class GpuPlan:
    """A plan on torch's current stream."""

    def __init__(self, plan: TrainingPlan, one: OneSize, target: OneGpu) -> None:
        self.plan: Plan = plan.plan
        self._run, self._one, self._target = plan, one, target
        self._new_loss = partial(torch.empty, (), dtype=torch.float32, device=target.device)

    def __call__(self, inputs: Sequence[int], targets: Sequence[int]) -> Tensor:
        """Enqueue the step on a batch at these addresses; returns its loss, which the GPU writes
        later."""
        loss = self._new_loss()
        self._run(inputs, targets, loss.data_ptr())
        return loss

    def observed(self, inputs: Sequence[int], targets: Sequence[int]) -> dict[Key, np.ndarray]:
        """Run the same step by step, and wait for it; returns loss, outputs and gradients. These
        are of the loss as it is scaled."""
        self._target.wait()
        return self._run.observed(inputs, targets)

    @property
    def built(self) -> Built:
        """The plan with what executes it."""
        return self._run.built

    @property
    def sources(self) -> dict[str, GraphInput]:
        """The graph's inputs by the names of their values."""
        return {item.value.name: item for item in self._one.graph.inputs}

    def constant(self, kind: str, target: str) -> np.ndarray:
        """A constant of the graph."""
        found: np.ndarray = self._one.constants[target].detach().cpu().numpy()
        return found

    def reload(self, frozen: Mapping[str, Tensor]) -> None:
        """Read weights that no step changes again."""
        self._run.load(self._one.reading(frozen, self._target.array))


class GpuState:
    """The state's memory as tensors on the GPU."""

    def __init__(self, state: TrainingState, target: OneGpu) -> None:
        self._state, self._target = state, target
        self.has, self.keys, self.shape = state.has, state.keys, state.shape

    @property
    def bytes(self) -> int:
        """Bytes of all that it holds."""
        return self._state.bytes

    def read(self, key: Key) -> Tensor:
        """A copy, in PyTorch's order."""
        dtype = getattr(torch, self._state.dtype(key))
        made = torch.empty(self._state.shape(key), dtype=dtype, device=self._target.device)
        self._target.wait_for_torch()  # the memory may be what an earlier tensor had
        self._state.copy_to(key, made.data_ptr())
        return made

    def write(self, key: Key, tensor: Tensor) -> None:
        """Give it the content of a tensor."""
        self._state.write(key, self._target.array(tensor.detach()))

    def clear(self, kinds: Iterable[str]) -> None:
        """Set everything of these kinds to zero."""
        self._state.clear(kinds)

    def settle(self) -> None:
        """Wait until it is there, and so are half-precision copies of parameters."""
        self._state.settle()
