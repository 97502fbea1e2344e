"""Outputs that a context lends: its own memory, which the next such call overwrites."""

from __future__ import annotations

import os
from collections.abc import Sequence

import torch
from torch import Tensor

from golow.levels.called.outputs import Outputs
from golow.levels.called.sizes import Size

DEBUG = "GOLOW_DEBUG"
"""With this variable set, every loan has new memory, and earlier loans are overwritten with NaN or
the lowest integer, so that a program notices if it reads a result for too long."""


class LentOutputs:
    """The memory of each size, made when it is first lent."""

    def __init__(self, outputs: Outputs) -> None:
        self._outputs = outputs
        self._held: dict[Size, list[Tensor]] = {}
        self._spoils = bool(os.environ.get(DEBUG))

    def lend(self, size: Size) -> list[Tensor]:
        """Return memory for the outputs of a size; what was lent before is over."""
        if self._spoils:
            for tensors in self._held.values():
                _spoil(tensors)
            self._held.clear()
        if size not in self._held:
            self._held[size] = self._outputs.new(size)
        return self._held[size]

    def close(self) -> None:
        """Release the memory, but for what the caller still has."""
        self._held.clear()


def _spoil(tensors: Sequence[Tensor]) -> None:
    with torch.inference_mode():
        for tensor in tensors:
            if tensor.is_floating_point() or tensor.is_complex():
                tensor.fill_(torch.nan)
            elif tensor.dtype != torch.bool:
                tensor.fill_(torch.iinfo(tensor.dtype).min)
