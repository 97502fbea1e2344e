"""Forms of a step: all texts continue at the same position, or each at its own."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor


class Form(NamedTuple):
    """Inputs of a step. batch: number of texts. own: whether each has its own position."""

    batch: int
    own: bool

    def position(self, device: torch.device) -> Tensor:
        """Return the position at which texts begin, int64 without axes or [batch, 1]."""
        shape = (self.batch, 1) if self.own else ()
        return torch.zeros(shape, dtype=torch.int64, device=device)

    def sample(self, count: int, device: torch.device) -> tuple[Tensor, Tensor]:
        """Return this many new tokens, and a position."""
        tokens = torch.zeros(self.batch, count, dtype=torch.int64, device=device)
        return tokens, self.position(device)
