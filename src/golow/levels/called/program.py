"""The worker of the variant ``called``: a PyTorch program that calls a direct level's plan."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from golow.levels.called.building import built
from golow.levels.called.called_module import CalledModule
from golow.levels.called.level import BUILT_BEFORE, CALLED
from golow.levels.called.wanted import Wanted
from golow.levels.torch.bundle import tensors
from golow.levels.torch.device import Arithmetic
from golow.levels.torch.program import TorchProgram
from golow.levels.torch.step import Lowered
from golow.observer import Silent
from golow.workload.bundle import Bundle
from golow.workload.weights import load_weights


class Called(TorchProgram):
    """The module as `golow.compile` returns it. It takes float32 in every precision, as the direct
    level itself does. tune: whether a GPU's engines are chosen by timing them when it is built; a
    CPU's layouts are."""

    builds_on_first_iteration = True
    constant_weights = True

    def __init__(self, tune: bool) -> None:
        super().__init__()
        self._tune = tune
        self._called: CalledModule | None = None

    def lower(self, module: nn.Module, inputs: tuple[Tensor, ...]) -> Lowered:
        """Build the plan, or load the module's weights into it."""
        if self._called is not None:
            self._called.load_state_dict(module.state_dict())
            return self._called
        self._called = self.built(module, inputs)
        return self._called

    def built(self, module: nn.Module, inputs: tuple[Tensor, ...]) -> CalledModule:
        """The module with its plan. Layouts are chosen by measuring in the first process alone."""
        on_gpu = self.device.type == "cuda"
        built_before = Path(os.environ[BUILT_BEFORE]).exists()
        wanted = Wanted(
            precision=self.workload.precision,
            threads=None if on_gpu else self.workload.threads,
            tune=(self._tune or not on_gpu) and not built_before,
        )
        return built(CalledModule, module, inputs, wanted, Silent())

    def _read(self, bundle: Bundle) -> None:
        super()._read(bundle)
        self.arithmetic = Arithmetic(torch.float32, torch.float32)
        load_weights(self.module.float(), tensors(bundle, "weights"))

    def _infer(self, inputs: tuple[Tensor, ...]) -> Any:
        return self.call(*inputs)  # it records no gradients, and needs no mode for that

    def _arrange(self, tensors: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        return tensors


def program(variant: str) -> Called:
    """The worker's side."""
    return Called(tune=variant != CALLED)
