"""The inputs of a training step: those of the module, and the targets of the loss after them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from golow.levels.called.call_inputs import (
    CallInputs,
    InputForm,
    listed_example,
    require_on,
)
from golow.levels.called.given_arrays import as_tensor
from golow.records.errors import GolowError


class StepInputs(CallInputs):
    """The tensors of a batch in one order: inputs, then targets. Any number of samples fits; the
    sizes are those that there are plans for. number: of the inputs."""

    def __init__(self, module: nn.Module, example: Sequence[Any], device: torch.device) -> None:
        """example: the module's inputs as `golow.compile` takes them, then each target. Raises
        `GolowError` for what is not a tensor, or elsewhere."""
        if isinstance(example, (Tensor, Mapping, str)) or not isinstance(example, Sequence):
            raise GolowError(
                f"the example is {type(example).__name__}, not a batch of inputs and targets",
                "give example arguments of the step: example=(x, y).",
            )
        if not example:
            raise GolowError("the example is empty", "give example=(x, y).")
        super().__init__(module, listed_example(module, example[0]), None, device)
        self.number = len(self.example)
        targets = [as_tensor(f"target {k}", item) for k, item in enumerate(example[1:])]
        for place, item in enumerate(targets):
            require_on(f"target {place}", item, device)
        self.forms += tuple(
            InputForm(
                f"target {place}",
                tuple(item.shape),
                item.dtype,
                bool(item.dim()) and item.shape[0] == self.batch,
            )
            for place, item in enumerate(targets)
        )
        self.example += tuple(targets)
        self.batches = ()

    def learn(self, rows: int) -> None:
        """Know this size from now on."""
        self.batches = (*self.batches, rows)
        vars(self).pop("exact", None)

    def listed(self, batch: Sequence[Any]) -> list[Any]:
        """The tensors of a call in their order. Raises `GolowError` for too few or too many."""
        first, *targets = batch or (None,)
        wanted = len(self.forms) - self.number
        if len(targets) != wanted or not batch:
            raise GolowError(
                f"a step was given {len(targets)} targets; this was compiled for {wanted}",
                "call it as in the example: first the inputs, then each target.",
            )
        if self.keywords:
            return [*self.ordered((first,), {}), *targets]
        inputs = [first] if isinstance(first, Tensor) else listed_example(nn.Identity(), first)
        if isinstance(inputs, Mapping) or len(inputs) != self.number:
            raise GolowError(
                f"a step was given {len(inputs)} inputs; this was compiled for {self.number}",
                "several inputs are one tuple: step((a, b), y).",
            )
        return [*inputs, *targets]

    def _takes(self, rows: int) -> bool:
        return rows >= 1

    def _misfit(self, form: InputForm, tensor: Tensor) -> GolowError:
        if tensor.dtype != form.dtype or not form.batched:
            return super()._misfit(form, tensor)
        found = "x".join(map(str, tensor.shape)) or "one number"
        sample = "x".join(map(str, form.shape[1:])) or "one number"
        return GolowError(
            f"{form.label} is {found}; this was compiled for samples of {sample}",
            "inputs and targets of a batch have one size in their first axis, as in the example.",
        )
