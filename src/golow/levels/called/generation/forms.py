"""Forms of a step: all texts continue at the same position, or each at its own; an encoder may
read a source."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

BEGINNING = 0  # in the place of a number of tokens: of the step that also reads a source


class Form(NamedTuple):
    """Inputs of a step. batch: number of texts. own: whether each has its own position. source:
    shape of what an encoder reads, tokens [batch, count] or features with more axes."""

    batch: int
    own: bool
    source: tuple[int, ...] = ()

    def position(self, device: torch.device) -> Tensor:
        """Return the position at which texts begin, int64 without axes or [batch, 1]."""
        shape = (self.batch, 1) if self.own else ()
        return torch.zeros(shape, dtype=torch.int64, device=device)

    def sample(self, count: int, device: torch.device) -> tuple[Tensor, ...]:
        """Return this many new tokens, and a position; for `BEGINNING`, one token, a position and a
        source."""
        if count == BEGINNING:
            dtype = torch.int64 if len(self.source) == 2 else torch.float32
            source = torch.zeros(self.source, dtype=dtype, device=device)
            return *self.sample(1, device), source
        tokens = torch.zeros(self.batch, count, dtype=torch.int64, device=device)
        return tokens, self.position(device)
