"""A training step of a module: forward pass, loss, backward pass and update, as one plan."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple, Self

import torch
from torch import Tensor, nn

from golow.levels.called.forks import forks
from golow.levels.called.processor import Processor
from golow.levels.called.training.evaluation import Evaluation
from golow.levels.called.training.module_weights import ModuleWeights
from golow.levels.called.training.optimizer_settings import require_rate
from golow.levels.called.training.optimizer_state import OptimizerMemory
from golow.levels.called.training.step_inputs import StepInputs
from golow.levels.called.training.step_plans import OneBatch, StepPlans
from golow.levels.called.uncopied import Uncopied
from golow.levels.direct.onednn.run.called_plan import set_threads
from golow.levels.direct.onednn.run.training_plan import TrainingPlans
from golow.lower.plan.listing import table_lines
from golow.observer import Observer, Silent
from golow.records.errors import GolowError

LOSS_BYTES = 4


class StepParts(NamedTuple):
    """Parts of a training step. module: the caller's layers, whose weights hold nothing; inputs by
    their names, as the caller gives them."""

    module: nn.Module
    inputs: StepInputs
    plans: StepPlans
    memory: TrainingPlans
    weights: ModuleWeights
    optimizer: OptimizerMemory
    target: Processor
    every: int
    rate: float
    cache: Path


class TrainingStep(Uncopied):
    """A training step that runs in this process, over weights and an optimizer's state of its own.

    Call it on a batch, as in the example: ``step(x, y)``. The module that it was compiled from
    stays as it was; `state_dict` has the weights.
    """

    instead = "for another process: golow.compile_step there, then load_state_dict."

    def __init__(self, parts: StepParts) -> None:
        self._parts, self._inputs = parts, parts.inputs
        self._memory, self._threads = parts.memory, parts.target.threads
        self._lock, self._forks = threading.Lock(), len(forks)
        self._plans: dict[int, OneBatch] = {}
        self._every, self._added = parts.every, 0
        self._version = 0  # of the weights
        self._evaluation = Evaluation(
            parts.module, parts.inputs, self._threads, parts.cache, parts.weights.read
        )
        self._closed = False
        self._set_rate(parts.rate)

    def __call__(self, *batch: Any) -> Tensor:
        """Train on a batch: the inputs (one tensor, a tuple, or a mapping by name), then each
        target. Returns its loss before the update, a number. Raises `GolowError` for a batch that
        does not fit; a new number of samples takes the seconds of building its plan."""
        with self._alone():
            known = self._inputs.exact(batch)
            if known is None:
                tensors, size = self._inputs.fitting(self._inputs.listed(batch))
                addresses = [item.data_ptr() for item in tensors]
            else:
                size, addresses = known
            plans = self._plans.get(size[0]) or self._at(size[0], Silent())
            return self._run(plans, addresses)

    def _run(self, plans: OneBatch, addresses: list[int]) -> Tensor:
        number = self._inputs.number
        set_threads(self._threads)
        self._added += 1
        plan = plans.updating
        if self._added < self._every and plans.adding is not None:
            plan = plans.adding
        plan(addresses[:number], addresses[number:])
        if plan is plans.updating:
            self._added = 0
            self._parts.optimizer.steps += 1
            if self._every > 1:
                self._memory.state.clear(["gradient_sum"])
        self._version += 1
        loss = torch.empty((), dtype=torch.float32, device="cpu")  # whatever the defaults are
        ctypes.memmove(loss.data_ptr(), plan.loss_address, LOSS_BYTES)
        return loss

    # ------------------------------------------------------------ between steps

    @property
    def learning_rate(self) -> float:
        """The learning rate of the next steps; setting it builds nothing."""
        return self._rate

    @learning_rate.setter
    def learning_rate(self, rate: float) -> None:
        found = require_rate(rate)
        with self._alone():
            self._set_rate(found)

    def state_dict(self) -> dict[str, Tensor]:
        """The module's state dict with the weights as they are now; the tensors are copies."""
        with self._alone():
            return self._parts.weights.read()

    def optimizer_state(self) -> dict[str, Any]:
        """What ``load_state_dict`` of the optimizer takes in torch.optim, made for
        ``model.parameters()`` or with the groups of the one that was given."""
        with self._alone():
            return self._parts.optimizer.read(self._rate)

    def load_state_dict(
        self, state: Mapping[str, Tensor], optimizer: Mapping[str, Any] | None = None
    ) -> None:
        """Take other weights, and what the optimizer keeps and its learning rate if they are given.

        Both are state dicts of PyTorch's. Gradients that wait for an update are forgotten. Raises
        `GolowError` for those of another module or optimizer, before anything changes.
        """
        with self._alone():
            weights = self._parts.weights.fitting(state)
            kept = None if optimizer is None else self._parts.optimizer.fitting(optimizer)
            self._parts.target.building()
            self._parts.weights.write(weights)
            self._parts.optimizer.forget_sums()
            self._added = 0
            self._version += 1
            if kept is not None:
                self._parts.optimizer.write(kept)
                self._set_rate(kept.rate)

    def evaluate(self, *inputs: Any, **named: Any) -> Any:
        """What the module in ``eval()`` returns with the present weights. Its plan of inference is
        built at the first call, and again for a larger batch; the first call after a step brings
        the weights over. Inputs and outputs are those of `golow.compile`."""
        with self._alone():
            return self._evaluation(self._version, inputs, named)

    # ------------------------------------------------------------ what it is

    def plan(self, batch: int | None = None) -> str:
        """Return the steps of the plan that updates, a line each; batch: of which size, by default
        the example's. Raises `GolowError` for a size that there is no plan for yet."""
        rows = next(iter(self._plans), None) if batch is None else batch
        if rows not in self._plans:
            raise GolowError(
                f"there is no plan for batch {rows}", f"there are {sorted(self._plans)}."
            )
        return "\n".join(table_lines(self._plans[rows].updating.plan))

    def memory(self) -> dict[str, int]:
        """Return bytes: ``state``, of weights, optimizer and sums of gradients, once for all sizes,
        and ``iteration``, what a step needs beside them."""
        with self._alone():
            memory = self._memory
            return {"state": memory.state.bytes, "iteration": memory.iteration_bytes}

    def close(self) -> None:
        """Give all memory back. A later call is an error."""
        with self._lock:
            if self._closed:
                return
            self._evaluation.close()
            self._closed, self._plans = True, {}
            del self._parts, self._memory, self._evaluation

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # ------------------------------------------------------------ implementation

    def build(self, rows: int, observer: Observer) -> OneBatch:
        """Build the plans of a batch size, if there are none yet."""
        return self._plans.get(rows) or self._at(rows, observer)

    def loss_of(self, batch: Sequence[Tensor]) -> float:
        """The loss of a batch of tensors in their order, by a step that updates."""
        plan = self.build(self._inputs.batch, Silent()).updating
        addresses, number = [item.data_ptr() for item in batch], self._inputs.number
        plan(addresses[:number], addresses[number:])
        return float(ctypes.c_float.from_address(plan.loss_address).value)

    def _set_rate(self, rate: float) -> None:
        self._rate = rate
        self._memory.state.set_rate(rate)

    def _at(self, rows: int, observer: Observer) -> OneBatch:
        found = self._plans[rows] = self._parts.plans.of(rows, observer)
        self._memory.state.set_rate(self._rate)
        return found

    @contextmanager
    def _alone(self) -> Iterator[None]:
        if not self._lock.acquire(blocking=False):
            raise GolowError("another thread is using this step", "steps follow one another.")
        try:
            if self._closed:
                raise GolowError("the compiled step is closed")
            if self._forks != len(forks):
                raise GolowError(
                    "the step was compiled in the process that this one was forked from",
                    "compile it after the fork: threads do not survive one.",
                )
            yield
        finally:
            self._lock.release()
