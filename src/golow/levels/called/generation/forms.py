"""Forms of a step: texts that all go on behind as many tokens, or each at a position of its own."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor


class Form(NamedTuple):
    """Inputs of a step. batch: how many texts. own: whether each has a position of its own."""

    batch: int
    own: bool

    def position(self, device: torch.device) -> Tensor:
        """Return the beginning of texts, int64 without axes or [batch, 1]."""
        shape = (self.batch, 1) if self.own else ()
        return torch.zeros(shape, dtype=torch.int64, device=device)

    def sample(self, count: int, device: torch.device) -> tuple[Tensor, Tensor]:
        """Return so many new tokens, and a position."""
        tokens = torch.zeros(self.batch, count, dtype=torch.int64, device=device)
        return tokens, self.position(device)
