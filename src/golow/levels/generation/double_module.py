"""A module in float64 whose weights can be moved by roundings, and moved back."""

from __future__ import annotations

from itertools import chain

import torch
from torch import Tensor, nn

from golow.worker.text_program import Moved
from golow.workload.generation.step_modules import device_of


class DoubleModule:
    """The module, converted layer by layer where it is. What it was given stays beside it, in its
    own precision, so that moving it reads no file."""

    def __init__(self, module: nn.Module) -> None:
        self._given = [_apart(item) for item in _tensors(module)]
        self.module = module.double()

    def move(self, moved: Moved | None) -> None:
        """Perturb each weight by this share of itself, up or down; None returns to what was
        given."""
        for own, given in zip(_tensors(self.module), self._given, strict=True):
            own.copy_(given)
        if moved is not None:
            _perturb(self.module, moved)


def _tensors(module: nn.Module) -> list[Tensor]:
    return [item.detach() for item in chain(module.parameters(), module.buffers())]


def _apart(item: Tensor) -> Tensor:
    """The tensor, which `double` leaves as it is, or a copy of one that it does not convert."""
    converted = item.is_floating_point() and item.dtype != torch.float64
    return item if converted else item.clone()


def _perturb(module: nn.Module, moved: Moved) -> None:
    device = device_of(module)
    draws = torch.Generator(device).manual_seed(moved.seed)
    for weight in module.parameters():
        ups = torch.randint(2, weight.shape, generator=draws, device=device, dtype=torch.float32)
        weight.mul_(ups.mul_(2 * moved.share).add_(1 - moved.share))
