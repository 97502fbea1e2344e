"""``eager:static``: the step module in PyTorch, its caches written in place."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from golow.levels.generation.program import TextProgram
from golow.workload.generation.step_modules import device_of, step_of
from golow.workload.generation.text_bundle import TextBundle


class Static:
    """A generator over a step module."""

    def __init__(self, step: nn.Module) -> None:
        self._step = step
        self._position = torch.zeros((), dtype=torch.long, device=device_of(step))

    def prefill(self, tokens: Tensor) -> Tensor:
        """Logits after the tokens that texts begin with."""
        return self.step(tokens, 0)

    def step(self, tokens: Tensor, position: int) -> Tensor:
        """Logits after the next tokens."""
        self._position.fill_(position)
        logits: Tensor = self._step(tokens, self._position)
        return logits


def step_module(bundle: TextBundle) -> nn.Module:
    """The step module of a bundle, with caches for its texts."""
    return step_of(bundle.module(), bundle.workload.batch, bundle.workload.longest)


def program(variant: str) -> TextProgram:
    """The worker's side."""
    return TextProgram(lambda bundle: Static(step_module(bundle)))
