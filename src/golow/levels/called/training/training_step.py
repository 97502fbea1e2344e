"""A training step of a module: forward pass, loss, backward pass and update, as one plan."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple, Self

import numpy as np
from torch import Tensor

from golow.levels.called.forks import forks, require_own_process
from golow.levels.called.training.evaluation import Evaluation
from golow.levels.called.training.module_weights import ModuleWeights
from golow.levels.called.training.optimizer_settings import require_rate
from golow.levels.called.training.optimizer_state import OptimizerMemory
from golow.levels.called.training.scaler_state import given_scale, scaler_state
from golow.levels.called.training.step_inputs import StepInputs
from golow.levels.called.training.step_plans import OneBatch, StepPlans
from golow.levels.called.training.step_target import Key, StepTarget
from golow.levels.called.uncopied import Uncopied
from golow.lower.plan.listing import table_lines
from golow.observer import Observer, Silent
from golow.records.errors import GolowError


class StepParts(NamedTuple):
    """Parts of a training step. rates: of each group of parameters."""

    inputs: StepInputs
    plans: StepPlans
    device: StepTarget
    weights: ModuleWeights
    optimizer: OptimizerMemory
    evaluation: Evaluation
    every: int
    rates: tuple[float, ...]


class TrainingStep(Uncopied):
    """A training step that runs in this process, with its own weights and optimizer state. Call it
    on a batch, as in the example: ``step(x, y)``. The original module stays unchanged; `state_dict`
    returns the trained weights.
    """

    instead = "for another process: golow.compile_step there, then load_state_dict."

    def __init__(self, parts: StepParts) -> None:
        self._parts, self._inputs, self._device = parts, parts.inputs, parts.device
        self._level = parts.device.target.level
        self._lock, self._forks = threading.Lock(), len(forks)
        self._plans: dict[int, OneBatch] = {}
        self._every, self._added = parts.every, 0
        self._version = 0  # of the weights
        self._closed = False
        self._set_rates(parts.rates)

    def __repr__(self) -> str:
        batches = ", ".join(map(str, self._plans))
        what = "closed" if self._closed else f"batch {batches or self._inputs.batch}"
        return f"<golow: training step at {self._level}, {what}>"

    def __call__(self, *batch: Any) -> Tensor:
        """Train on a batch: the inputs (one tensor, a tuple, or a mapping by name), then each
        target. Returns the loss before the update, a tensor of one number; on a GPU,
        ``float(loss)`` waits for the step. Raises `GolowError` for a batch that does not fit. A new
        batch size builds a plan first, which takes seconds."""
        self._begin()
        try:
            known = self._inputs.exact(batch)
            if known is None:
                tensors, size = self._inputs.fitting(self._inputs.listed(batch))
                addresses = [item.data_ptr() for item in tensors]
            else:
                size, addresses = known
            plans = self._plans.get(size[0]) or self._at(size[0], Silent())
            return self._run(plans, addresses)
        finally:
            self._lock.release()

    def _run(self, plans: OneBatch, addresses: list[int]) -> Tensor:
        number = self._inputs.number
        self._added += 1
        plan = plans.updating
        if self._added < self._every and plans.adding is not None:
            plan = plans.adding
        loss = plan(addresses[:number], addresses[number:])
        if plan is plans.updating:
            self._added = 0
            self._parts.optimizer.steps += 1
        self._version += 1
        return loss

    # ------------------------------------------------------------ between steps

    @property
    def learning_rate(self) -> float | tuple[float, ...]:
        """Learning rate of the next steps: a number, or one for each parameter group if the
        optimizer has several. Setting it builds nothing; a single number applies to all groups."""
        return self._rates[0] if len(self._rates) == 1 else self._rates

    @learning_rate.setter
    def learning_rate(self, rate: float | Sequence[float]) -> None:
        given: Sequence[Any] = rate if isinstance(rate, tuple | list) else [rate] * len(self._rates)
        if len(given) != len(self._rates):
            raise GolowError(
                f"{len(given)} learning rates were given, and the optimizer has "
                f"{len(self._rates)} groups of parameters",
                "give one number, or one for each group.",
            )
        found = tuple(map(require_rate, given))
        with self._alone():
            self._set_rates(found)

    @property
    def loss_scale(self) -> float:
        """Factor by which the loss is scaled before the backward pass; 1 unless the step computes
        in float16. Waits for the steps so far."""
        with self._alone():
            self._device.wait()
            found = self._device.scale()
        return 1.0 if found is None else found.value

    def state_dict(self) -> dict[str, Tensor]:
        """Return the module's state dict with the present weights, as copies."""
        with self._alone():
            self._device.wait()
            return self._parts.weights.read()

    def optimizer_state(self) -> dict[str, Any]:
        """Return a state dict for ``load_state_dict`` of the torch.optim optimizer, over
        ``model.parameters()`` or with the groups of the optimizer that was passed."""
        with self._alone():
            self._device.wait()
            return self._parts.optimizer.read(self._rates)

    def scaler_state(self) -> dict[str, Any]:
        """Return a state dict for ``load_state_dict`` of `torch.amp.GradScaler`; empty, like that
        of a disabled scaler, unless the step computes in float16."""
        with self._alone():
            self._device.wait()
            return scaler_state(self._device.scale())

    def load_state_dict(
        self,
        state: Mapping[str, Tensor],
        optimizer: Mapping[str, Any] | None = None,
        scaler: Mapping[str, Any] | None = None,
    ) -> None:
        """Load weights and, if given, the optimizer's state with its learning rates, and the loss
        scale. All are PyTorch state dicts. Accumulated gradients are discarded. Raises `GolowError`
        for state of another module or optimizer, before anything changes.
        """
        with self._alone():
            weights = self._parts.weights.fitting(state)
            kept = None if optimizer is None else self._parts.optimizer.fitting(optimizer)
            scale = None if scaler is None else given_scale(scaler, self._device.scaled)
            self._device.wait()
            self._parts.optimizer.forget_sums()
            self._added = 0
            self._version += 1
            if kept is not None:
                self._parts.optimizer.write(kept)
                self._set_rates(kept.rates)
            if scale is not None:
                self._device.set_scale(scale)
            self._parts.weights.write(weights)
            self._parts.plans.reload()

    def evaluate(self, *inputs: Any, **named: Any) -> Any:
        """Return the output of the module in ``eval()`` mode with the present weights. The
        inference plan is built at the first call, and again for a larger batch; the first call
        after a step copies the weights. Inputs and outputs are as in `golow.compile`."""
        with self._alone():
            return self._parts.evaluation(self._version, inputs, named)

    # ------------------------------------------------------------ what it is

    def plan(self, batch: int | None = None) -> str:
        """Return the steps of the plan that updates, one per line. batch: selects the size; by
        default the example's. Raises `GolowError` for a size without a plan."""
        rows = next(iter(self._plans), None) if batch is None else batch
        if rows not in self._plans:
            raise GolowError(
                f"there is no plan for batch {rows}", f"there are {sorted(self._plans)}."
            )
        return "\n".join(table_lines(self._plans[rows].updating.plan))

    def memory(self) -> dict[str, int]:
        """Return bytes: ``state``, for weights, optimizer and accumulated gradients, once for all
        sizes, and ``iteration``, which a step needs in addition."""
        with self._alone():
            device = self._device
            return {"state": device.state.bytes, "iteration": device.iteration_bytes}

    def close(self) -> None:
        """Release all memory. A later call is an error. Ranks close their steps together."""
        with self._lock:
            if self._closed:
                return
            self._device.wait()
            self._device.close()
            self._parts.evaluation.close()
            self._closed, self._plans = True, {}
            del self._parts, self._device

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # ------------------------------------------------------------ implementation

    @property
    def parts(self) -> StepParts:
        """For what writes the step down."""
        return self._parts

    @property
    def plans(self) -> Mapping[int, OneBatch]:
        """Its plans, by batch."""
        return self._plans

    def build(self, rows: int, observer: Observer) -> OneBatch:
        """Build the plans of a batch size, if there are none yet."""
        return self._plans.get(rows) or self._at(rows, observer)

    def loss_of(self, batch: Sequence[Tensor]) -> float:
        """The loss of a batch of tensors in their order, by a step that updates at a learning rate
        of zero and drops nothing."""
        plan = self.build(self._inputs.batch, Silent()).updating
        addresses, number, rates = (
            [item.data_ptr() for item in batch],
            self._inputs.number,
            self._rates,
        )
        self._set_rates((0.0,) * len(rates))
        self._device.set_dropout(active=False)
        loss = float(plan(addresses[:number], addresses[number:]))
        self._device.set_dropout(active=True)
        self._set_rates(rates)
        return loss

    def observed(self, batch: Sequence[Tensor]) -> dict[Key, np.ndarray]:
        """Make a step on contiguous tensors in their order, which drops nothing and updates; return
        loss, outputs and gradients."""
        with self._alone():
            self._device.wait()
            scale, number = self._device.scale(), self._inputs.number
            addresses = [item.data_ptr() for item in batch]
            plan = (self._plans.get(len(batch[0])) or self._at(len(batch[0]), Silent())).updating
            self._device.set_dropout(active=False)
            found = plan.observed(addresses[:number], addresses[number:])
            self._device.set_dropout(active=True)
            self._parts.optimizer.steps += 1
            self._version += 1
        if scale is not None:
            found |= {key: a / scale.value for key, a in found.items() if key[0] == "gradient"}
        return found

    def _set_rates(self, rates: tuple[float, ...]) -> None:
        self._rates = rates
        for group, rate in enumerate(rates):
            self._device.set_rate(group, rate)

    def _at(self, rows: int, observer: Observer) -> OneBatch:
        found = self._plans[rows] = self._parts.plans.of(rows, observer)
        self._set_rates(self._rates)
        return found

    def _begin(self) -> None:
        """Take the lock. Raises `GolowError`, without it, if the step cannot be used here."""
        if not self._lock.acquire(blocking=False):
            raise GolowError("another thread is using this step", "steps follow one another.")
        if not self._closed and self._forks == len(forks):
            return
        self._lock.release()
        if self._closed:
            raise GolowError("the compiled step is closed")
        require_own_process(self._forks, "the step was compiled")

    @contextmanager
    def _alone(self) -> Iterator[None]:
        self._begin()
        try:
            yield
        finally:
            self._lock.release()
