"""A module as a callable over the plan of a direct level."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from typing import NamedTuple, Self
from weakref import WeakSet

from torch import Tensor, nn

from golow.levels.called.call_inputs import CallInputs
from golow.levels.called.context import Context
from golow.levels.called.given_state import GivenTensors, StateForm, tensors_in
from golow.levels.called.one_size import OneSize
from golow.levels.called.outputs import Outputs
from golow.levels.called.sizes import Size, in_words, wanted_batches, wanted_lengths
from golow.levels.called.target import SharedMemory, Target, TargetPlan
from golow.levels.direct.bundle_arrays import Read
from golow.lower.plan.listing import table_lines
from golow.records.errors import GolowError


class Parts(NamedTuple):
    """Parts of a called module. module: as it takes its inputs by position."""

    module: nn.Module
    inputs: CallInputs
    outputs: Outputs
    sizes: Mapping[Size, OneSize]
    plans: Mapping[Size, TargetPlan]
    weights: SharedMemory
    target: Target


class CalledModule(Context):
    """A module whose plan runs in this process, with separate weights. It is its first context.

    Call it as the module: tensors in, tensors out. Later changes to the module's weights do not
    affect it; `load_state_dict` does. sizes: the parts that each plan is built from. state: the
    weights loaded last, by name.
    """

    instead = (
        "for another thread: f.context(); for another process or device: golow.compile, there."
    )

    def __init__(self, parts: Parts) -> None:
        super().__init__(parts.inputs, parts.outputs, parts.plans, parts.target)
        self.state: Mapping[str, Tensor] = tensors_in(parts.module.state_dict())
        self._given = GivenTensors(self.state)
        self.plans, self.sizes, self.target = dict(parts.plans), parts.sizes, parts.target
        self._module, self._weights = parts.module, parts.weights
        self._form = StateForm(parts.module)
        self._others: WeakSet[Context] = WeakSet()  # one goes with whoever asked for it

    @property
    def name(self) -> str:
        """The module's class."""
        return type(self._module).__name__

    def __repr__(self) -> str:
        sizes = ", ".join(map(in_words, self.plans)) or "closed"
        return f"<golow: {self.name} at {self.target.level}, {sizes}>"

    def context(self) -> Context:
        """Return a second memory for iterations, over the same weights, for another thread."""
        self._require_open()
        made = Context(self.inputs, self.outputs, self.plans, self.target)
        self._others.add(made)
        return made

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """Replace the weights, in the same memory; nothing is built again. Waits for running calls
        of all contexts. Raises `GolowError` for weights of another module, before anything
        changes."""
        self._require_open()
        if self.target.shares:
            raise GolowError(
                "the weights are shared with the module (share=True)",
                "call the module's load_state_dict.",
            )
        fitting = self._form.fitting(state)
        self.target.building()
        with ExitStack() as calls:
            for context in (self, *self._others):
                calls.enter_context(context.held())
            for size, plan in self.plans.items():
                plan.load(self.sizes[size].reading(fitting, self.target.array))
            self.state, self._given = fitting, GivenTensors(fitting)

    def require_given_weights(self) -> None:
        """Raise `GolowError` if a weight was changed in place since the plan took it."""
        if not self.target.shares:
            self._given.require_unchanged()

    def reading(self, size: Size) -> Read:
        """Return the reader of the weights and constants of a size's plan."""
        return self.sizes[size].reading(self.state, self.target.array)

    def plan(self, batch: int | None = None, sequence: int | None = None) -> str:
        """Return the steps of the plan, one per line. batch and sequence select the size; by
        default the largest. Raises `GolowError` for a size that was not compiled."""
        return "\n".join(table_lines(self.plans[self.size(batch, sequence)].plan))

    def step_seconds(self, size: Size) -> dict[int, float]:
        """Return the time of each step of a size's plan on the example, by position; empty if the
        level does not time steps here."""
        self._require_open()
        sample = [item.contiguous() for item in self.inputs.sample(size)]
        return self.target.step_seconds(self.plans[size], sample, self.outputs.new(size))

    def memory(self) -> dict[str, int]:
        """Return bytes: ``weights``, once for all sizes and contexts, without those that are the
        module's own, and ``iteration``, which each context has once."""
        sizes = [plan.plan.sizes for plan in self.plans.values()]
        only = len(sizes) == 1 and not self.target.shares
        alone = sizes[0]["constant"] if only else 0  # one plan has separate weights
        return {
            "weights": self._weights.bytes or alone,
            "iteration": max((places["arena"] for places in sizes), default=0),
        }

    def close(self) -> None:
        """Release all memory. A later call is an error."""
        for context in self._others:
            context.close()
        super().close()
        self.plans = {}
        self._weights.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def size(self, batch: int | None, sequence: int | None) -> Size:
        """Return the size for this batch and length; without a number, the largest. Raises
        `GolowError` if there is no plan for it."""
        self._require_open()
        batches, lengths = self.inputs.batches, self.inputs.lengths
        size = (
            batches[-1] if batch is None else batch,
            lengths[-1] if sequence is None else sequence,
        )
        if size not in self.plans:
            known = wanted_batches(batches)
            known += f" and {wanted_lengths(lengths)}" if self.inputs.length else ""
            raise GolowError(f"there is no plan for {in_words(size)}", f"this has {known}.")
        return size

    def _require_open(self) -> None:
        if not self.plans:
            raise GolowError("the compiled module is closed")
