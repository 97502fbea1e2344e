"""The checks of `torch.distributions`, which look at the values of parameters and samples."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from torch.distributions import Distribution


@contextmanager
def distributions_unchecked() -> Iterator[None]:
    """Construct distributions without these checks in the block, as torch.compile does: a graph
    cannot raise their errors."""
    before = Distribution._validate_args
    Distribution.set_default_validate_args(False)
    try:
        yield
    finally:
        Distribution.set_default_validate_args(before)
