"""A module in float64 whose weights can be moved by roundings, and moved back."""

from __future__ import annotations

from itertools import chain

import torch
from torch import Tensor, nn

from golow.worker.text_program import Moved
from golow.workload.generation.step_modules import device_of


class DoubleModule:
    """The module, converted layer by layer where it is. While it is moved, what it was given is
    beside it in its own precision, of which float64 has every number."""

    def __init__(self, module: nn.Module) -> None:
        self._types = [item.dtype for item in _tensors(module)]
        self._given: list[Tensor] = []
        self.module = module.double()

    def move(self, moved: Moved | None) -> None:
        """Perturb each weight by this share of itself, up or down; None returns to what was
        given."""
        tensors = _tensors(self.module)
        if not self._given:
            typed = zip(tensors, self._types, strict=True)
            self._given = [item.to(dtype, copy=True) for item, dtype in typed]
        for item, given in zip(tensors, self._given, strict=True):
            item.copy_(given)
        if moved is None:
            self._given = []
        else:
            _perturb(self.module, moved)


def _tensors(module: nn.Module) -> list[Tensor]:
    return [item.detach() for item in chain(module.parameters(), module.buffers())]


def _perturb(module: nn.Module, moved: Moved) -> None:
    device = device_of(module)
    draws = torch.Generator(device).manual_seed(moved.seed)
    for weight in module.parameters():
        ups = torch.randint(2, weight.shape, generator=draws, device=device, dtype=torch.float32)
        weight.mul_(ups.mul_(2 * moved.share).add_(1 - moved.share))
