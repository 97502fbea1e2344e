"""The inverse of a short-time Fourier transform, written as its arithmetic while a model is
captured: PyTorch's call looks at the elements of its windows, which a graph does not have."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch

from golow.lower.decompositions.spectra import istft


@contextmanager
def inverse_spectra_in_graph() -> Iterator[None]:
    """Within the block ``istft`` to a real signal is traced as arithmetic."""
    plain = torch.istft
    torch.istft = partial(_istft, plain)
    try:
        yield
    finally:
        torch.istft = plain


def _istft(plain: Callable[..., Any], *given: Any, **named: Any) -> Any:
    found = istft(*given, **named)
    return plain(*given, **named) if found is NotImplemented else found
