"""Operations that make a tensor and name no type, in float64."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from threading import RLock

import torch

_ONE_AT_A_TIME = RLock()


@contextmanager
def float64_by_default() -> Iterator[None]:
    """Make float64 PyTorch's default type within the block. The process has one default: other
    threads wait for the block to end, or they would put back what they found in it."""
    with _ONE_AT_A_TIME:
        before = torch.get_default_dtype()
        torch.set_default_dtype(torch.float64)
        try:
            yield
        finally:
            torch.set_default_dtype(before)
