"""The module in ``eval()`` with the weights of a training run, by plans of inference."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from golow.levels.called.building import built
from golow.levels.called.called_module import CalledModule
from golow.levels.called.training.module_weights import without_content
from golow.levels.called.training.step_inputs import StepInputs
from golow.levels.called.wanted import Wanted
from golow.observer import Silent
from golow.records.errors import GolowError

Read = Callable[[], Mapping[str, Tensor]]


class Evaluation:
    """Plans for the sizes that were evaluated, built when they are needed. One serves smaller
    batches, too, if the module treats samples apart. module: its weights hold nothing. read: the
    present weights. wanted: the settings of every plan."""

    def __init__(self, module: nn.Module, inputs: StepInputs, wanted: Wanted, read: Read) -> None:
        self._module, self._inputs, self._read = module, inputs, read
        self._wanted = wanted
        self._plans: dict[int, CalledModule] = {}
        self._version: dict[int, int] = {}  # of the weights that a plan has

    def __call__(self, version: int, given: tuple[Any, ...], named: Mapping[str, Any]) -> Any:
        """The output for these inputs with the weights of this version."""
        rows = self._rows(given, named)
        size = self._size_for(rows)
        if size is None:
            size = rows
            for smaller in [at for at, plan in self._plans.items() if plan.inputs.pads]:
                self._plans.pop(smaller).close()
            self._plans[size] = self.built([rows], given, named)
        elif self._version[size] != version:
            self._plans[size].load_state_dict(self._read())
        self._version[size] = version
        return self._plans[size](*given, **named)

    def close(self) -> None:
        """Release all memory."""
        for plan in self._plans.values():
            plan.close()
        self._plans.clear()

    def _size_for(self, rows: int) -> int | None:
        if rows in self._plans:
            return rows
        padded = (at for at, plan in self._plans.items() if plan.inputs.pads and at >= rows)
        return next(padded, None)

    @torch.inference_mode(False)
    def built(
        self, sizes: Sequence[int], given: tuple[Any, ...], named: Mapping[str, Any]
    ) -> CalledModule:
        """Build plans of inference for these batches, with the present weights. One that mixes
        samples has a plan for that of the example alone."""
        module = without_content(self._module, torch.device("cpu"))
        module.load_state_dict(self._read())
        module.eval().to(self._inputs.device)
        example = named or (given[0] if len(given) == 1 else given)
        wanted = self._wanted._replace(batch=list(sizes))
        try:
            made = built(CalledModule, module, example, wanted, Silent())
        except GolowError:  # one that mixes samples, such as by a loss, has no padding
            made = built(CalledModule, module, example, wanted._replace(batch=None), Silent())
        module.to("meta")  # the plan has the weights
        return made

    def _rows(self, given: tuple[Any, ...], named: Mapping[str, Any]) -> int:
        """The size of the batch: of the first input that has one."""
        for item, form in zip(self._inputs.ordered(given, named), self._inputs.forms, strict=False):
            shape = tuple(getattr(item, "shape", ()))
            if form.batched and shape:
                return int(shape[0])
        return self._inputs.batch
